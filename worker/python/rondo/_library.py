"""librondo.so by ctypes: finds it, declares its calls, turns negative results into exceptions."""

import ctypes
import os

STATUS_EXISTS = 6


class Error(Exception):
    """A call failed. `status` is the number of enum rondo_status (rondo.h)."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class Exists(Error):
    """That step is sealed already."""


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("every_steps", ctypes.c_uint64),
        ("checkpoint_dir", ctypes.c_char_p),
    ]


class JobStruct(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("world", ctypes.c_uint32),
        ("local_rank", ctypes.c_uint32),
        ("local_world", ctypes.c_uint32),
        ("attempt", ctypes.c_uint32),
        ("incarnation", ctypes.c_uint32),
        ("managed", ctypes.c_uint32),
        ("job", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("role", ctypes.c_char_p),
        ("resume_dir", ctypes.c_char_p),
        ("resume_checkpoint", ctypes.c_int64),
        ("resume_step", ctypes.c_int64),
        ("resume_samples", ctypes.c_int64),
        ("every_steps", ctypes.c_uint64),
    ]


def candidates():
    """Named by the environment, beside the package (installed), or in a build folder of the
    checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("RONDO_LIBRARY")
    if named:
        yield named
        return
    yield os.path.join(here, "librondo.so")
    yield os.path.join(here, "..", "..", "librondo.so")
    yield os.path.join(here, "..", "..", "..", "build", "lib", "librondo.so")
    yield "librondo.so"


def load():
    problems = []
    for path in candidates():
        if "/" in path and not os.path.exists(path):
            continue
        try:
            return declare(ctypes.CDLL(path))
        except OSError as problem:
            problems.append(str(problem))
    raise ImportError("librondo.so was not found; set RONDO_LIBRARY to its path. " +
                      "; ".join(problems))


def declare(lib):
    i32, u32, i64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_int64
    size, text, pointer = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
    calls = {
        "rondo_join": (i32, [ctypes.POINTER(Options), ctypes.POINTER(JobStruct)]),
        "rondo_report_packed": (i32, [i64, i64, text, size, text, size]),
        "rondo_should_save_within": (i32, [i64, u32]),
        "rondo_should_stop_within": (i32, [i64, u32]),
        "rondo_stopping": (i32, []),
        "rondo_set_stopping": (None, [i32]),
        "rondo_save_dir": (i32, [i64, text, size, u32]),
        "rondo_commit": (i32, [i64, i64, u32]),
        "rondo_abort_save": (i32, [i64, u32]),
        "rondo_saving": (i32, [i32]),
        "rondo_finish": (i32, []),
        "rondo_failure": (i32, [text, text]),
        "rondo_error": (text, []),
        "rondo_version": (u32, []),
    }
    newer = {  # an older library is good for the rest
        "rondo_save_sharded": (i32, [pointer]),
        "rondo_prepare_sharded": (i32, [text, size]),
        "rondo_stored_open": (i32, [text, u32, pointer]),
        "rondo_stored_layout": (i32, [pointer, pointer, pointer]),
        "rondo_stored_state": (i32, [pointer, u32, pointer, pointer]),
        "rondo_load_sharded": (i32, [pointer, pointer]),
        "rondo_stored_close": (None, [pointer]),
    }
    for name, (result, arguments) in {**calls, **newer}.items():
        call = getattr(lib, name, None)
        if call is None and name in newer:
            continue
        if call is None:
            raise OSError(f"it has no {name}")
        call.restype, call.argtypes = result, arguments
    return lib


def check(lib, result):
    """The result when it is not negative; else its exception."""
    if result >= 0:
        return result
    text = lib.rondo_error().decode("utf-8", "replace")
    raise (Exists if result == -STATUS_EXISTS else Error)(-result, text)
