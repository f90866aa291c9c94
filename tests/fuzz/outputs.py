"""Standard outputs that commands may have: one in memory, and those that take nothing."""

import contextlib
import io
import os

__all__ = ["OUTPUTS", "output"]

OUTPUTS = ["memory"] * 6 + ["closed", "pipe", "full"]


@contextlib.contextmanager
def output(kind):
    """Have an output of a kind: in memory, closed, a pipe that no one reads, or a full disk."""
    if kind == "memory":
        yield io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
        return
    if kind == "closed":
        yield None
        return
    if kind == "full":
        stream = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115
    else:
        reader, writer = os.pipe()
        os.close(reader)
        stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # what it cannot write
            stream.close()
