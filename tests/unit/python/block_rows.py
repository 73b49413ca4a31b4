"""Tables of block digests for the fuzzer, good and bad, made without our code: standard library
alone. `block_rows.py DIR` writes them as inputs of tests/fuzz/fuzz_block_table."""

import os
import struct
import sys

BLOCK = 65536
TABLE = list(range(256))
for _ in range(8):
    TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in TABLE]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def summed(body):
    return body + struct.pack("<I", crc32c(body))


def body_of(sizes, magic=b"RNDBLKS1", version=1, block=BLOCK, files=None, zero=0, more=0):
    count = sum(-(-size // BLOCK) for size in sizes) + more
    files = len(sizes) if files is None else files
    return (magic + struct.pack("<IIII", version, block, files, zero) +
            b"".join(struct.pack("<Q", size) for size in sizes) +
            b"".join(struct.pack("<I", 0x01010101 * (i % 255)) for i in range(count)))


GOOD = summed(body_of([65537, 10]))
ROWS = {  # name: the file
    "no_files": summed(body_of([])),
    "one_file": summed(body_of([1])),
    "empty_file": summed(body_of([0])),
    "borders": summed(body_of([0, 65535, 65536, 65537])),
    "no_bytes": b"",
    "magic_alone": b"RNDBLKS1",
    "other_magic": summed(body_of([1], magic=b"RNDBLKS2")),
    "other_version": summed(body_of([1], version=2)),
    "other_block": summed(body_of([1], block=4096)),
    "no_block": summed(body_of([1], block=0)),
    "not_zero": summed(body_of([1], zero=1)),
    "more_files_than_bytes": summed(body_of([1], files=4096)),
    "too_many_files": summed(body_of([1], files=0xFFFFFFFF)),
    "sum_of_another": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
    "one_byte_less": GOOD[:-1],
    "one_byte_more": GOOD + b"\0",
    "one_block_more": summed(body_of([65537, 10], more=1)),
    "one_block_less": summed(body_of([65537, 10], more=-1)),
    "size_of_2_64": summed(body_of([])[:16] + struct.pack("<IIQI", 1, 0, 2 ** 64 - 1, 0)),
    "sizes_that_wrap": summed(body_of([], files=2) + struct.pack("<QQ", 2 ** 63, 2 ** 63)),
}


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, blob in ROWS.items():
        with open(os.path.join(sys.argv[1], name), "wb") as file:
            file.write(b"\0" + blob)


if __name__ == "__main__":
    main()
