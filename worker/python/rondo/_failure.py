"""Uncaught exceptions: to the agent through librondo, and to torchrun's error file in torch's own
format."""

import json
import os
import sys
import threading
import time
import traceback

TEXT_MAX = 64 * 1024
installed = False


def error_file(kind, value, text):
    """What torch.distributed.elastic writes: readers of that format find the same here."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path) and os.path.getsize(path) > 0:
        return  # torch's own record decorator was here first
    content = {
        "message": {
            "message": f"{kind.__name__}: {value}"[:TEXT_MAX],
            "extraInfo": {"py_callstack": text[-TEXT_MAX:], "timestamp": str(int(time.time()))},
        }
    }
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8", errors="replace") as file:
            json.dump(content, file)
        os.replace(temporary, path)
    except OSError:
        pass  # the exception itself must still be seen


def record(lib, kind, value, trace):
    text = "".join(traceback.format_exception(kind, value, trace))
    try:
        line = f"{kind.__name__}: {value}"
    except Exception:  # a __str__ that fails must not hide the failure
        line = kind.__name__
    lib.rondo_failure(to_bytes(line), to_bytes(text))
    error_file(kind, line.partition(": ")[2], text)


def to_bytes(text):
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace")


def install(lib):
    """Hooks sys.excepthook and threading.excepthook; what was there before still runs."""
    global installed
    if installed:
        return
    installed = True
    owner = os.getpid()
    previous, previous_thread = sys.excepthook, threading.excepthook

    def hook(kind, value, trace):
        if os.getpid() == owner and not issubclass(kind, KeyboardInterrupt):
            try:
                record(lib, kind, value, trace)
            except Exception:
                pass
        previous(kind, value, trace)

    def thread_hook(args):  # does not end the process: only said, in case it does
        if os.getpid() == owner and args.exc_type is not SystemExit:
            try:
                text = "".join(traceback.format_exception(args.exc_type, args.exc_value,
                                                          args.exc_traceback))
                what = f"{args.exc_type.__name__}: {args.exc_value}"
                lib.rondo_failure(to_bytes(what), to_bytes(text))
            except Exception:
                pass
        previous_thread(args)

    sys.excepthook, threading.excepthook = hook, thread_hook
