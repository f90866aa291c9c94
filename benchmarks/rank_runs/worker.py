"""One rank of a job: it takes turns that a file in a folder asks for.

    python -m rank_runs.worker FOLDER THREADS BACKEND KIND...

A KIND is the path of a model, or ``allreduce`` and a number of floats, such as ``allreduce:2048``.
For turn number n there is a file ``n.json`` with the index of the kind and how many steps are
wanted. Rank 0 answers in ``n.answer.json``. A rank that waits sleeps, so that it takes no time from
the other job. The file ``end`` ends it.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import tensor_ops_decode
from tensor_ops_decode.ranks.launchers import launch

__all__ = ["ALLREDUCES", "written"]

#: How many allreduces a step has whose latency is measured.
ALLREDUCES = 64
_PROMPT = 32
_POLL = 0.003  # seconds


def main(folder: Path, threads: int, backend: str, kinds: list[str]) -> None:
    """Make the kernels of all kinds, and run turns."""
    started = launch()
    is_first = started is None or started.rank == 0
    with contextlib.ExitStack() as stack:
        runs = [_run_of(kind, threads, backend, stack) for kind in kinds]
        written(folder / f"ready.{os.getpid()}", "{}")
        for number in count():
            asked = folder / f"{number}.json"
            while not asked.exists():
                if (folder / "end").exists():
                    return
                time.sleep(_POLL)
            turn = json.loads(asked.read_text(encoding="utf-8"))
            answer = runs[turn["kind"]](turn["steps"])
            if is_first:
                written(folder / f"{number}.answer.json", json.dumps(answer))


def written(path: Path, text: str) -> None:
    """Write a file that is there only when it is complete."""
    part = path.with_name(f"{path.name}.part.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _run_of(
    kind: str, threads: int, backend: str, stack: contextlib.ExitStack
) -> Callable[[int], dict[str, Any]]:
    """Return what runs a number of steps, and says how long they took."""
    given: dict[str, Any] = {"num_workers": threads, "max_seq_length": 2048}
    given |= {"backend": backend, "max_num_batched_requests": 1}
    what, _, size = kind.partition(":")
    if what != "allreduce":
        model = None if kind == "stand-in" else kind
        kernel = tensor_ops_decode.PersistentKernel(model=model, **given)
        kernel = stack.enter_context(kernel)
        kernel.compile(progress=lambda done, size: None)  # packs all weights
        return _Decoding(kernel)
    kernels = []
    for number in (1, 1 + ALLREDUCES):  # layers without any would be divided among the ranks
        kernel = tensor_ops_decode.PersistentKernel(**given, max_num_batched_tokens=1)
        kernels.append(stack.enter_context(kernel))
        _describe_allreduces(kernel, number, int(size))
        kernel.compile()
    return _Exchanging(*kernels)


class _Decoding:
    """Decodes with a model."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __call__(self, steps: int) -> dict[str, Any]:
        """Return the seconds of a step, after a prompt."""
        kernel = self.kernel
        kernel.reset()
        words = kernel.program.values["logits"].columns
        kernel.add_request([i % words for i in range(_PROMPT)], ignore_eos=True)
        while not kernel():
            pass
        start = time.perf_counter()
        kernel.run(steps)
        return {"seconds": (time.perf_counter() - start) / steps}


class _Exchanging:
    """Runs steps with few and with many allreduces."""

    def __init__(self, few: Any, many: Any) -> None:
        self.few, self.many = few, many

    def __call__(self, steps: int) -> dict[str, Any]:
        """Return the seconds of an allreduce, each the mean of those of a step."""
        found = []
        for kernel in (self.few, self.many):
            kernel.reset()
            kernel.add_request([0], ignore_eos=True)
            kernel()
            times = []
            for _ in range(steps):
                start = time.perf_counter()
                kernel()
                times.append(time.perf_counter() - start)
            found.append(times)
        few = statistics.median(found[0])
        first, median, third = statistics.quantiles(found[1], n=4)
        return {
            name: (seconds - few) / ALLREDUCES
            for name, seconds in (("first", first), ("median", median), ("third", third))
        }


def _describe_allreduces(kernel: Any, number: int, size: int) -> None:
    """Describe a step that does nothing but to add zeros over all ranks, one after another."""

    def value(name: str, columns: int = size, dtype: str = "float32") -> Any:
        return kernel.new_tensor((1, columns), dtype, name=name)

    zeros = kernel.attach_input(np.zeros((2, size), np.float32), name="zeros")
    x = kernel.embed_layer(weight=zeros, output=value("x"))
    for i in range(number):
        x = kernel.allreduce_layer(input=x, output=value(f"sum {i}"))
    logits = kernel.linear_layer(input=x, weight=zeros, output=value("logits", 2))
    kernel.argmax_layer(input=logits, output=value("next", 1, "int32"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
