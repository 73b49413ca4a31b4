#!/usr/bin/env python3
"""charlm: a small GPT that learns Python's own standard library, character by character.

One process, torchrun, or Rondo: the same script. Exact on resume: what a run of the same world size
would have computed without the interruption is what it computes with it, bit for bit. Any number of
ranks goes on from what any other number has saved, and trains every sequence once and in the same
order.

    python3 train.py --steps 200
    torchrun --nproc_per_node 2 train.py
    rondoctl submit --follow job.yaml
"""

import argparse
import datetime
import hashlib
import math
import os
import sys
import sysconfig
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
try:
    import rondo
except ImportError:  # run from a checkout: the package is beside the examples
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, "..", "..", "worker", "python"))
    import rondo

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 128  # ASCII; everything else becomes one character
TIMEOUT = datetime.timedelta(seconds=120)


# --- data


def read_text(limit=4 << 20):
    """Source of the standard library, in an order that is the same everywhere."""
    root = sysconfig.get_paths()["stdlib"]
    names = sorted(name for name in os.listdir(root) if name.endswith(".py"))
    pieces, size = [], 0
    for name in names:
        with open(os.path.join(root, name), "rb") as file:
            pieces.append(file.read())
        size += len(pieces[-1])
        if size >= limit:
            break
    if size < 10000:
        raise SystemExit(f"no text below {root}")
    data = torch.tensor(list(b"\n".join(pieces)[:limit]), dtype=torch.uint8)
    data[data >= VOCABULARY] = ord("?")
    return data


class Sequences:
    """The text cut into sequences that start every half length."""

    def __init__(self, data, length):
        self.data, self.length = data, length
        self.stride = length // 2

    def __len__(self):
        return (len(self.data) - self.length - 1) // self.stride

    def batch(self, indices):
        starts = [index * self.stride for index in indices]
        rows = torch.stack([self.data[start : start + self.length + 1] for start in starts]).long()
        return rows[:, :-1], rows[:, 1:]


# --- model


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        rows, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads) + mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, length, width)
        x = x + F.dropout(self.out(mixed), self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout, self.training)


class CharGPT(nn.Module):
    """About 217,000 parameters at the default sizes."""

    def __init__(self, length, width=64, heads=4, layers=4, dropout=0.05):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.apply(self.start)
        # Added to the scores. Not a boolean: gloo cannot broadcast those. Not saved: it follows
        # from the length.
        self.register_buffer("mask", torch.full((length, length), -1e9).triu(1), persistent=False)

    @staticmethod
    def start(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.token(tokens) + self.place.weight[:length]
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return self.norm(x) @ self.token.weight.T  # the embedding is also the output layer


# --- training


def learning_rate(step, options):
    """Linear warm-up, then a cosine down to a tenth."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    done = min(1.0, (step - options.warmup) / max(1, options.steps - options.warmup))
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


class Trainer:
    def __init__(self, job, options):
        self.job, self.options = job, options
        self.step = 0
        self.sequences = Sequences(read_text(), options.length)
        self.sampler = rondo.Sampler(len(self.sequences), options.batch, options.seed)
        torch.manual_seed(options.seed)
        self.model = CharGPT(options.length)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=options.lr, betas=(0.9, 0.95))
        # Every rank holds all of this, and writes its share; random states are each rank's own.
        self.state = {
            "model": self.model,
            "optimizer": rondo.Optimizer(self.optimizer, self.model),
            "sampler": self.sampler,
            "random": rondo.Random(),
        }
        torch.manual_seed(options.seed * 1000 + job.rank)  # dropout differs between ranks
        loaded = rondo.load(self.state)
        if loaded:
            self.step = loaded.step
            at = f"step {loaded.step}, sample {loaded.samples}"
            print(f"rank {job.rank} resumed at {at}: {self.digest()}", flush=True)
        self.net = DistributedDataParallel(self.model) if job.world > 1 else self.model

    def train_step(self):
        """One step over the global batch. Gives the mean loss over all ranks, and whether any rank
        was told to stop."""
        rate = learning_rate(self.step, self.options)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        inputs, targets = self.sequences.batch(self.sampler.share())
        logits = self.net(inputs)
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        self.sampler.advance()
        common = torch.tensor([loss.item(), float(self.job.stopping())], dtype=torch.float64)
        if self.job.world > 1:  # a SIGTERM reaches one rank first: all must end at the same step
            dist.all_reduce(common)
        return common[0].item() / self.job.world, rate, common[1].item() > 0

    def run(self):
        options, stop = self.options, False
        while self.step < options.steps and not stop:
            began = time.perf_counter()
            loss, rate, told = self.train_step()
            if not math.isfinite(loss):
                raise FloatingPointError(f"loss is {loss} at step {self.step}")
            speed = options.batch * options.length / (time.perf_counter() - began)
            cursor = self.sampler.cursor
            self.job.report(self.step, samples=cursor, loss=loss, lr=rate, tokens_per_s=speed)
            save = self.job.should_save(self.step)
            stop = self.job.should_stop(self.step) or told
            if save or stop or self.step == options.steps:
                rondo.save(self.step, self.state, sync=stop or self.step == options.steps)
            told = self.step % options.print_every == 0 or self.step == options.steps
            if self.job.rank == 0 and told:
                line = f"step {self.step} loss {loss:.4f} lr {rate:.2e} tokens/s {speed:.0f}"
                print(line, flush=True)
        if self.job.rank == 0:
            how = "stopped" if stop else "done"
            print(f"{how} at step {self.step}, sample {self.sampler.cursor}: {self.digest()}")
        if not stop:
            self.job.finish()

    def digest(self):
        """Of all weights: equal digests mean bit-exact."""
        whole = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            whole.update(name.encode())
            whole.update(tensor.numpy().tobytes())
        return whole.hexdigest()


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=12, help="sequences a step, over all ranks")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=100,
                        help="save every so many steps where no job file says it")
    parser.add_argument("--print-every", type=int, default=20)
    return parser.parse_args()


def main():
    options = read_options()
    job = rondo.join(every_steps=options.every)
    if options.batch % job.world:
        raise SystemExit(f"a batch of {options.batch} cannot be cut over {job.world} ranks")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if job.world > 1:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    Trainer(job, options).run()
    if job.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
