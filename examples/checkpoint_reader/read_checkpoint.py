#!/usr/bin/env python3
"""Reads a sharded checkpoint with the standard library alone: DIR [NAME] lists tensors, or writes
the bytes of one (little-endian, row-major) to stdout. Every block is checked before it is used."""
import functools
import itertools
import json
import math
import os
import struct
import sys

TABLE = list(range(256))  # CRC32C, the polynomial 0x1EDC6F41 reflected
for _ in range(8):
    TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in TABLE]


def crc32c(data):
    step = lambda crc, byte: crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return functools.reduce(step, data, 0xFFFFFFFF) ^ 0xFFFFFFFF


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def boxes(directory):
    """(name, header entry, where the box begins, its bytes) of all boxes of all ranks."""
    for part in json.loads(read(directory, "manifest.json"))["parts"]:
        table = read(directory, f"{part['role']}-{part['rank']}", "blocks.crc32c")
        block, files = struct.unpack_from("<II", table, 12)
        crcs = struct.iter_unpack("<I", table[24 + 8 * files : -4])
        names = (file["path"] for file in part["files"])
        for path in sorted(name for name in names if name.endswith(".safetensors")):
            data = read(directory, path)
            for at in range(0, len(data), block):
                if crc32c(data[at : at + block]) != next(crcs)[0]:
                    sys.exit(f"{path}, block {at // block}: damaged")
            base = 8 + struct.unpack_from("<Q", data)[0]
            header = json.loads(data[8:base])
            where = json.loads(header.pop("__metadata__")["DCP_SHARDING_INFO"])
            for name, entry in header.items():
                begin, end = (base + at for at in entry["data_offsets"])
                yield name, entry, where[name]["saved_offsets"], data[begin:end]


def gather(pieces):
    """A tensor's shape (as far as its boxes reach) and bytes."""
    ends = ([a + n for a, n in zip(at, entry["shape"])] for entry, at, _ in pieces)
    shape = [max(end) for end in zip(*ends)] or [1]
    whole = bytearray(sum(len(data) for _, _, data in pieces))
    for entry, at, data in pieces:
        size, at = entry["shape"] or [1], at or [0]
        element = len(data) / math.prod(size)  # bytes: half a one for F4
        run, line = int(size[-1] * element), int(shape[-1] * element)
        for number, row in enumerate(itertools.product(*map(range, size[:-1]))):
            place = 0
            for index, begin, extent in zip(row, at, shape):
                place = place * extent + index + begin
            place = place * line + int(at[-1] * element)
            whole[place : place + run] = data[number * run : (number + 1) * run]
    return shape, whole


tensors = {}
for name, *piece in boxes(sys.argv[1]):
    tensors.setdefault(name, []).append(piece)
for name in sys.argv[2:]:
    sys.stdout.buffer.write(gather(tensors[name])[1])
for name in sorted(tensors) if len(sys.argv) == 2 else ():
    print(tensors[name][0][0]["dtype"], "x".join(map(str, gather(tensors[name])[0])), name)
