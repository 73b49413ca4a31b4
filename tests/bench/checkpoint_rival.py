"""What a user of torch does instead: one operation a process, its seconds and extra peak memory.

usage: checkpoint_rival.py save PATH TENSORS ROWS COLUMNS | load PATH
       | shards DIR N TENSORS ROWS COLUMNS | reshard DIR N M
"""
import os
import resource
import sys
import time

import torch


def state(tensors, rows, columns):
    noise = torch.rand(rows, columns)
    made = {}
    for i in range(tensors):
        made["layer.%05d" % i] = noise.clone()
    return made


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def save(path, *shape):
    made = state(*map(int, shape))
    base, begin = peak(), time.monotonic()
    torch.save(made, path)
    sync(path)
    return time.monotonic() - begin, base


def load(path):
    base, begin = peak(), time.monotonic()
    torch.load(path, map_location="cpu")
    return time.monotonic() - begin, base


def shards(where, count, tensors, rows, columns):
    base, begin = peak(), time.monotonic()
    for rank in range(int(count)):
        path = "%s/s%d" % (where, rank)
        torch.save(state(int(tensors), int(rows) // int(count), int(columns)), path)
        sync(path)
    return time.monotonic() - begin, base


def reshard(where, count, parts):
    base, begin = peak(), time.monotonic()
    read = [torch.load("%s/s%d" % (where, i), map_location="cpu") for i in range(int(count))]
    whole = {name: torch.cat([shard[name] for shard in read]) for name in read[0]}
    del read
    for i in range(int(parts)):
        path = "%s/o%d" % (where, i)
        torch.save({n: t.tensor_split(int(parts))[i].clone() for n, t in whole.items()}, path)
        sync(path)
    return time.monotonic() - begin, base


seconds, base = globals()[sys.argv[1]](*sys.argv[2:])
print("%.6f %.1f" % (seconds, peak() - base))
