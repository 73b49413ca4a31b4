"""The job as a training script sees it."""

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import tempfile
import threading
import time

from . import _current, _failure, _library, checkpoint

SLICE_MS = 200  # how long a call stays in C before Python may run signal handlers
SAVE_S = 600.0
SHAPES_MAX = 1024  # sets of names that are remembered
DEADLINE = -4
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class Resume:
    """Where to go on: step and samples of the committed checkpoint, its directory (None: from the
    start)."""

    __slots__ = ("dir", "step", "samples", "checkpoint", "role")

    def __init__(self, directory, step, samples, checkpoint, role):
        self.dir, self.checkpoint, self.role = directory, checkpoint, role
        self.step, self.samples = step, samples

    def __bool__(self):
        return self.dir is not None

    def part(self, rank=0, role=None):
        """The directory that this rank wrote."""
        return os.path.join(self.dir, f"{role or self.role}-{rank}")

    def __repr__(self):
        return f"Resume(step={self.step}, samples={self.samples}, dir={self.dir!r})"


def join(every_steps=0, checkpoint_dir=None, catch_sigterm=True, catch_exceptions=True):
    """Becomes a member of the job. every_steps and checkpoint_dir count where no job file says
    otherwise.

    catch_sigterm: a SIGTERM sets stopping() instead of ending the process; a script that never asks
    stopping() or should_stop() is ended as ever. Call it from the main thread."""
    lib = _library.load()
    options = _library.Options(
        size=ctypes.sizeof(_library.Options),
        every_steps=every_steps,
        checkpoint_dir=os.fsencode(checkpoint_dir) if checkpoint_dir else None,
    )
    found = _library.JobStruct(size=ctypes.sizeof(_library.JobStruct))
    _library.check(lib, lib.rondo_join(ctypes.byref(options), ctypes.byref(found)))
    job = _current.joined = Job(lib, found)
    if catch_exceptions:
        _failure.install(lib)
    if catch_sigterm and threading.current_thread() is threading.main_thread():
        job._catch_sigterm()
    return job


class Job:
    """rank, world, local_rank, local_world, id, name, role, attempt, incarnation, managed (False:
    alone), resume."""

    def __init__(self, lib, found):
        self._lib = lib
        self.rank, self.world = found.rank, found.world
        self.local_rank, self.local_world = found.local_rank, found.local_world
        self.id, self.attempt, self.incarnation = found.job, found.attempt, found.incarnation
        self.managed = bool(found.managed)
        self.name, self.role = os.fsdecode(found.name), os.fsdecode(found.role)
        self.every_steps = found.every_steps
        self.resume = Resume(
            os.fsdecode(found.resume_dir) if found.resume_dir else None,
            found.resume_step,
            found.resume_samples,
            found.resume_checkpoint,
            self.role,
        )
        self._shapes = {}
        self._report = lib.rondo_report_packed
        self._asked = False

    # --- reports

    def report(self, step, samples=-1, **values):
        """One step's values: int is kept as 64-bit integer, float as double; NumPy and torch
        scalars are taken."""
        shape = self._shapes.get((tuple(values), tuple(map(type, values.values()))))
        if shape is None:
            return self._report_new(step, samples, values)
        try:
            packed = shape[1](*values.values())
        except struct.error:  # an int of more than 64 bits
            return self._report_new(step, samples, values)
        result = self._report(step, samples, shape[0], shape[2], packed, shape[3])
        if result < 0:
            _library.check(self._lib, result)
        return None

    def _report_new(self, step, samples, values):
        given = (tuple(values), tuple(map(type, values.values())))
        values = {name: plain(value) for name, value in values.items()}
        key = (tuple(values), tuple(map(type, values.values())))
        shape = self._shapes.get(key)
        if shape is None:
            kinds = ["q" if kind is int else "d" for kind in key[1]]
            schema = b"".join(kind.encode() + _failure.to_bytes(name) + b"\0"
                              for kind, name in zip(kinds, values))
            shape = (schema, struct.Struct("=" + "".join(kinds)).pack, len(schema), len(kinds))
            if len(self._shapes) < SHAPES_MAX:
                self._shapes[key] = shape
        if all(map(is_plain, given[1])) and len(self._shapes) < SHAPES_MAX:
            self._shapes[given] = shape
        packed = shape[1](*values.values())
        rc = self._report(int(step), int(samples), shape[0], shape[2], packed, shape[3])
        _library.check(self._lib, rc)

    # --- questions

    def should_save(self, step):
        """Save at this step? The same answer on every rank that asks at the same steps."""
        return self._ask(self._lib.rondo_should_save_within, step)

    def should_stop(self, step):
        """Stop after this step? The same answer on every rank."""
        self._asked = True
        return self._ask(self._lib.rondo_should_stop_within, step)

    def _ask(self, call, step):
        while True:
            result = call(step, SLICE_MS)
            if result < 0:
                _library.check(self._lib, result)
            if result < 2:
                return result == 1

    def stopping(self):
        """A SIGTERM has come to this rank: stop soon. One rank's view: agree with the others before
        acting on it."""
        self._asked = True
        return self._lib.rondo_stopping() == 1

    def _catch_sigterm(self):
        previous = signal.getsignal(signal.SIGTERM)
        owner = os.getpid()

        def handler(signum, frame):
            if os.getpid() != owner or not self._asked:
                # A data loader, or a script that never asks.
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
                return
            self._lib.rondo_set_stopping(1)
            if callable(previous):
                previous(signum, frame)

        if previous is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, handler)

    # --- saves

    def save_state(self, step, state, layout=None, samples=None, **more):
        """rondo.save of this job."""
        return checkpoint.save(step, state, layout, samples, job=self, **more)

    def load_state(self, state, layout=None, **more):
        """rondo.load of this job."""
        return checkpoint.load(state, layout, job=self, **more)

    @contextlib.contextmanager
    def save(self, step, samples, timeout=SAVE_S):
        """A directory to write this rank's files into; committed at the end of the block, dropped
        on an exception. Every rank of the role saves, also one that has nothing to write (an empty
        block)."""
        try:
            directory = self.save_dir(step, timeout)
        except _library.Exists:
            # Sealed by an earlier incarnation of this attempt: the same bytes, not needed again.
            directory = tempfile.mkdtemp(prefix="rondo-sealed-")
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            return
        try:
            yield directory
        except BaseException:
            with contextlib.suppress(_library.Error):
                self.abort_save(step, timeout=5.0)
            raise
        self.commit(step, samples, timeout)

    def save_dir(self, step, timeout=SAVE_S):
        out = ctypes.create_string_buffer(4096)
        self._wait(timeout, lambda ms: self._lib.rondo_save_dir(step, out, len(out), ms))
        return os.fsdecode(out.value)

    def commit(self, step, samples, timeout=SAVE_S):
        """This rank's files are complete. Returns once they are durable; the checkpoint counts once
        all ranks are there."""
        self._wait(timeout, lambda ms: self._lib.rondo_commit(step, samples, ms))

    def _wait(self, timeout, call):
        """In slices, so that Ctrl-C works: the same call again waits on for the same answer."""
        deadline = time.monotonic() + timeout
        while True:
            result = call(SLICE_MS)
            if result != DEADLINE or time.monotonic() >= deadline:
                _library.check(self._lib, result)
                return

    def abort_save(self, step, timeout=SAVE_S):
        _library.check(self._lib, self._lib.rondo_abort_save(step, to_ms(timeout)))

    def saving(self, on):
        """Says that a save by other means is under way: the grace period lasts longer."""
        _library.check(self._lib, self._lib.rondo_saving(1 if on else 0))

    # --- the end

    def finish(self):
        """The program has done what it had to do."""
        _library.check(self._lib, self._lib.rondo_finish())

    def failure(self, message, traceback=None):
        trace = _failure.to_bytes(traceback) if traceback else None
        _library.check(self._lib, self._lib.rondo_failure(_failure.to_bytes(message), trace))


def to_ms(seconds):
    return max(1, min(int(seconds * 1000), 0xFFFFFFFF))


def is_plain(kind):
    """Do all values of this type go into the same kind, and does struct take them as they are?"""
    return (issubclass(kind, (int, float)) or
            kind.__module__ == "numpy" and kind.__name__ != "ndarray")


def plain(value):
    """int or float of anything that is a number: bool, NumPy, torch (a tensor of one element).
    Others: TypeError."""
    if not isinstance(value, (int, float)):
        item = getattr(value, "item", None)
        value = item() if item else float(value)
    if isinstance(value, int):
        value = int(value)
        return value if INT64_MIN <= value <= INT64_MAX else float(value)
    return float(value)
