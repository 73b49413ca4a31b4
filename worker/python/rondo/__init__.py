"""rondo: what a training script uses of Rondo. Needs no compiler and no torch; outside Rondo the
same script runs.

    job = rondo.join()
    sampler = rondo.Sampler(len(dataset), batch=24, seed=1)
    state = {"model": model, "optimizer": rondo.Optimizer(optimizer, model), "sampler": sampler,
             "random": rondo.Random()}
    rondo.load(state)
    for step in range(job.resume.step + 1, steps + 1):
        loss = train(sampler.share())
        sampler.advance()
        job.report(step, samples=sampler.cursor, loss=loss)
        if job.should_save(step):
            rondo.save(step, state)
        if job.should_stop(step):
            break
    job.finish()
"""

from ._library import Error, Exists
from ._plain import Unsaveable
from ._state import Mismatch, PerRank
from .adapters import Optimizer, Random, ZeroOptimizer
from .checkpoint import Damaged, Loaded, Stored, load, prepare, save
from .job import Job, Resume, join
from .placement import Absent, Boxes, Flat, Layout, Like, Mesh, On, Placed, Replicate, Shard
from .sampler import Sampler, SamplerMismatch

__all__ = [
    "Absent", "Boxes", "Damaged", "Error", "Exists", "Flat", "Job", "Layout", "Like", "Loaded",
    "Mesh", "Mismatch", "On", "Optimizer", "PerRank", "Placed", "Random", "Replicate", "Resume",
    "Sampler", "SamplerMismatch", "Shard", "Stored", "Unsaveable", "ZeroOptimizer", "join", "load",
    "prepare", "save",
]
__version__ = "0.1.0"
