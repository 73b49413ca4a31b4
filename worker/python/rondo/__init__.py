"""rondo: what a training script uses of Rondo. Needs no compiler and no torch; outside Rondo the
same script runs.

    job = rondo.join()
    for step in range(job.resume.step + 1, steps + 1):
        loss = train(...)
        job.report(step, samples=cursor, loss=loss)
        if job.should_save(step):
            with job.save(step, samples=cursor) as directory:
                torch.save(state, directory + "/model.pt")
        if job.should_stop(step):
            break
    job.finish()
"""

from ._library import Error, Exists
from .job import Job, Resume, join
from .sampler import Sampler, SamplerMismatch

__all__ = ["Error", "Exists", "Job", "Resume", "Sampler", "SamplerMismatch", "join"]
__version__ = "0.1.0"
