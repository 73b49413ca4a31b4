"""The job that this process joined last: what calls go to that name none."""

from ._library import Error

PRECONDITION = 9
joined = None


def job():
    if joined is None:
        raise Error(PRECONDITION, "rondo.join was not called")
    return joined
