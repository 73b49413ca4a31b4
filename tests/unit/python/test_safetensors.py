"""Two readers of safetensors files that share nothing give the same verdict, on a file for each
rule of the format and on thousands of damaged ones; and what we write opens in the other."""

import os
import random
import struct
import subprocess

import pytest

from ranks_of import BUILD, SOURCE
from safetensors_rows import ROWS, Refused, read

VERDICT = os.path.join(BUILD, "tests", "safetensors_verdict")
KEPT = os.path.join(SOURCE, "tests", "fuzz", "corpus", "fuzz_safetensors")
PIECES = [b'"', b"\\", b"\\u0061", b"\\u0000", b"\\ud800", b",", b"}", b"{", b"[", b"]", b"0", b"4",
          b"-", b".", b"e", b" ", b"\t", b"\0", b"\xc3\xa9", b"\xff", b"null", b"true", b":", b"F4",
          b"18446744073709551615", b'"a":', b'"__metadata__":', b'"shape":[0],', b"\x7f", b"/"]


def verdicts(blobs):
    """None where ours refuses; else (tensors as they lie, the header that it would write)."""
    done = subprocess.run([VERDICT], input=b"".join(struct.pack("<I", len(blob)) + blob
                                                    for blob in blobs),
                          capture_output=True, timeout=300, check=True).stdout
    found = []
    for text in done.split(b"\0")[:-1]:
        lines = text.decode().split("\n")
        if lines[0] == "reject":
            found.append(None)
            continue
        tensors = []
        for line in lines[1:-1]:
            begin, end, dtype, shape, name = line.split(" ")
            tensors.append((int(begin), int(end), bytes.fromhex(name).decode(), dtype,
                            tuple(int(dim) for dim in shape.split("x") if dim)))
        found.append((sorted(tensors), bytes.fromhex(lines[-1].split(" ")[1])))
    assert len(found) == len(blobs)
    return found


def theirs(blob):
    try:
        return read(blob)
    except Refused:
        return None


def compare(blobs):
    taken = 0
    for blob, ours in zip(blobs, verdicts(blobs)):
        other = theirs(blob)
        assert (ours is None) == (other is None), blob
        if ours is None:
            continue
        taken += 1
        tensors, head = ours
        assert tensors == other[1], blob
        assert len(head) % 4096 == 0
        meta, again = read(head + bytes(sum(end - begin for begin, end, *_ in tensors)))
        assert meta == other[0]
        assert sorted(item[2:] for item in again) == sorted(item[2:] for item in tensors)
        widths = [(end - begin, begin) for begin, end, *_ in again]
        assert all(begin == sum(size for size, _ in widths[:i])
                   for i, (_, begin) in enumerate(widths))
    return taken


@pytest.mark.parametrize("name", list(ROWS))
def test_k20_each_rule_has_its_verdict_in_the_other_reader(name):
    good, blob = ROWS[name]
    assert (theirs(blob) is not None) == good


def test_k20_each_rule_has_its_verdict_in_ours():
    found = verdicts([blob for _, blob in ROWS.values()])
    wrong = [name for (name, (good, _)), ours in zip(ROWS.items(), found)
             if (ours is not None) != good]
    assert not wrong
    compare([blob for _, blob in ROWS.values()])


def test_each_rule_is_kept_for_the_fuzzer():
    for name, (_, blob) in ROWS.items():
        with open(os.path.join(KEPT, name), "rb") as file:
            assert file.read() == b"\0" + blob, name


def changed(dice, blob):
    size = struct.unpack_from("<Q", blob)[0]
    header, data = bytearray(blob[8:8 + size]), bytearray(blob[8 + size:])
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        at = dice.randrange(len(header) + 1)
        what = dice.randrange(4)
        if what == 0:
            header[at:at + dice.randrange(4)] = b""
        elif what == 1:
            header[at:at] = dice.choice(PIECES)
        elif what == 2 and at < len(header):
            header[at] ^= 1 << dice.randrange(8)
        else:
            end = min(len(header), at + dice.randrange(40))
            header[at:at] = header[at:end]
    if dice.randrange(8) == 0:
        data += b"\0"
    return struct.pack("<Q", len(header)) + bytes(header) + bytes(data)


def test_k20_damaged_headers_have_one_verdict_in_both():
    dice = random.Random(20)
    good = [blob for taken, blob in ROWS.values() if taken]
    taken = compare([changed(dice, dice.choice(good)) for _ in range(20000)])
    assert taken > 200  # the damage is not all of one kind


def test_every_flipped_bit_and_every_cut_has_one_verdict_in_both():
    blob = ROWS["any_order"][1]
    flips = []
    for at in range(len(blob)):
        for bit in range(8):
            flip = bytearray(blob)
            flip[at] ^= 1 << bit
            flips.append(bytes(flip))
    compare(flips + [blob[:at] for at in range(len(blob))] + [blob + b"\0"])
