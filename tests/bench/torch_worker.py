"""One gloo rank: its first all-reduce, then a line with the monotonic time to the file named by
the first argument. The same script under torchrun and under Rondo."""
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
values = torch.ones(1024)
dist.all_reduce(values)
done_ns = time.monotonic_ns()
assert values[0].item() == dist.get_world_size()
with open(sys.argv[1], "a", encoding="ascii") as file:
    file.write(f"{done_ns} {dist.get_rank()}\n")
