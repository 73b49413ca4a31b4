#!/usr/bin/env python3
"""A plain DDP script, written for torchrun. It fits a small network to a function; there is nothing
of Rondo in it.

    torchrun --nproc_per_node 2 ddp.py --out /tmp/run
    torchrun --nproc_per_node 2 ddp.py --out /tmp/run2 --resume /tmp/run/step-100
"""

import argparse
import datetime
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


def batch(step, rank, size=32):
    """Depends on step and rank alone."""
    source = torch.Generator().manual_seed(step * 4096 + rank)
    x = torch.rand(size, 2, generator=source) * 4 - 2
    return x, torch.sin(x[:, :1]) * torch.cos(x[:, 1:])


def save(out, step, model, optimizer):
    """The marker comes last: a directory without it is not a checkpoint."""
    directory = os.path.join(out, f"step-{step}")
    os.makedirs(directory, exist_ok=True)
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, os.path.join(directory, "model.pt"))
    with open(os.path.join(directory, "DONE"), "w"):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.02,
                        help="seconds a step, to look like a larger model")
    options = parser.parse_args()

    dist.init_process_group("gloo", init_method="env://", timeout=datetime.timedelta(seconds=120))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = [nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    first = 0
    if options.resume:
        state = torch.load(os.path.join(options.resume, "model.pt"), map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    net = DistributedDataParallel(model)
    print(f"rank {rank} of {world} starts at step {first}", flush=True)

    for step in range(first + 1, options.steps + 1):
        x, y = batch(step, rank)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.pause)
        if rank == 0 and (step % options.every == 0 or step == options.steps):
            save(options.out, step, model, optimizer)
            print(f"step {step} loss {loss.item():.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
