"""The loop of a process that answers requests: a line of JSON in, a line of JSON out."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["answer_all", "failure", "own_stdout"]


def own_stdout() -> Callable[[dict[str, Any]], None]:
    """Return what writes an answer to stdout; what libraries print goes to stderr from now on."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lambda answer: print(json.dumps(answer), file=stream, flush=True)


def answer_all(
    worker: object,
    write: Callable[[dict[str, Any]], None],
    failed: Callable[[Exception], dict[str, Any]],
) -> None:
    """Answer until there are no more requests, such as ``{"ask": "prepare", ...}``.

    What is asked for is a method of the worker. It may raise anything, of which `failed` makes an
    answer; only a crash of the process is none.
    """
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("ask"))(**request)
        except Exception as error:
            answer = failed(error)
        write(answer)


def failure(error: Exception) -> dict[str, Any]:
    """Return the answer that something has failed."""
    return {"failure": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
