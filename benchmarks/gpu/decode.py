"""Times decode steps of Llamas of random weights; a line of JSON for each figure.

    python -m gpu.decode --out FILE --seconds 200
    python -m gpu.decode --out FILE --seconds 60 --shapes null,L2,8B --kinds Q4_0,BF16

Beside the times are what was predicted of this GPU, and the bandwidth of a copy, where PyTorch is
installed. Without --shapes the model is one of a billion weights, and other engines follow:
PyTorch's transformers, with a static cache and compiled; and llama.cpp, where its program
llama-bench is on the PATH and the package gguf is installed, which writes the file that it opens.
It stops by itself when its time is up.
"""

import argparse
import functools
import json
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from decode_cuda.model import Shape
from decode_cuda.step_cases import LLAMA, MODELS, Model
from gpu import parts
from gpu.engines import engines
from gpu.found import Found, copied_bytes_per_second, found_here, predicted
from gpu.goals import OURS
from gpu.llama import KINDS, program_of

__all__ = ["figures", "main", "of_other_engines", "seconds_of_steps"]

Figure = dict[str, Any]
STEPS, ROUNDS = 64, 7
# The number of steps that are called one by one, and of those whose nodes are timed.
CALLS, PROFILES = 30, 10


def main(words: Sequence[str] | None = None) -> int:
    """Measure what there is time for; return 2 if it was not all."""
    options = _parser().parse_args(words)
    until = time.monotonic() + options.seconds
    import tensor_ops_cuda

    copied = copied_bytes_per_second()
    found = functools.partial(found_here, copied)
    chosen = [MODELS[name] for name in options.shapes or [LLAMA.name]]
    measured: Iterable[Figure] = chain.from_iterable(
        figures(tensor_ops_cuda, each, options.kinds, found=found) for each in chosen
    )
    if options.shapes is None:  # one of them may take long
        measured = chain(measured, of_other_engines(LLAMA, 512, STEPS, copied))
    with options.out.open("w", encoding="utf-8") as file:
        for figure in measured:
            print(json.dumps(figure), file=file, flush=True)
            if time.monotonic() > until:
                print("decode: its time was up", flush=True)
                return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200)
    shapes, kinds = _some_of(MODELS), _some_of(KINDS)
    parser.add_argument("--shapes", type=shapes, metavar="A,B", help=", ".join(MODELS))
    parser.add_argument(
        "--kinds", type=kinds, default=[*KINDS], metavar="A,B", help=", ".join(KINDS)
    )
    return parser


def _some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return text.split(",")

    return names


def figures(
    executor: Any,
    model: Model,
    kinds: Sequence[str] = tuple(KINDS),
    steps: int = STEPS,
    found: Callable[[], Found] = Found,
) -> Iterator[Figure]:
    """Time a model's steps in some types of weights; a failure is a figure too."""
    for kind in kinds:
        try:
            yield from _of_kind(executor, model, kind, steps, found)
        except Exception as error:
            print(f"failed: {kind}: {type(error).__name__}: {error}", flush=True)
            failures = {"all": f"{type(error).__name__}: {error}"[:300]}
            yield _figure(model.shape, kind, 0, 0) | {"failures": failures}


def of_other_engines(
    shape: Shape, positions: int, steps: int, copied: float | None
) -> Iterator[Figure]:
    """Time one request of a model by the engines that are here."""
    for name, kind, measured in engines(shape, positions, steps, ROUNDS):
        figure = _figure(shape, kind, 1, positions) | {"copied": copied}
        try:
            figure["us"] = {name: _us(measured())}
        except Exception as error:
            figure["failures"] = {name: f"{type(error).__name__}: {error}"[:300]}
        yield figure


def _of_kind(
    executor: Any, model: Model, kind: str, steps: int, found: Callable[[], Found]
) -> Iterator[Figure]:
    requests, positions = (max(numbers) for numbers in zip(*model.cases, strict=True))
    program, tensors = program_of(model.shape, kind, requests, positions + steps)
    names = [node["name"] for node in json.loads(program)["nodes"]]
    for blocks in (None, *_fewer_blocks(executor, model)):
        given = {} if blocks is None else {"num_workers": blocks}
        began = time.perf_counter()
        executable = executor.compile_program(program, tensors, **given)
        opened = round(time.perf_counter() - began, 2)
        try:
            for case in model.cases if blocks is None else model.cases[:1]:
                seconds = seconds_of_steps(executable, *case, steps)
                figure = _figure(model.shape, kind, *case) | {"blocks": blocks, "opened": opened}
                figure["us"] = {OURS: _us(seconds)}
                if case[0] == 1:
                    figure |= _of_one_request(executable, case[1], names)
                yield figure | predicted(found(), model.shape, kind, case, blocks)
        finally:
            executable.close()


def _fewer_blocks(executor: Any, model: Model) -> list[int]:
    """Return the numbers of blocks that are fewer than the multiprocessors of the device."""
    devices: list[Any] = getattr(executor, "devices", list)()
    return [round(part * devices[0].compute_units) for part in model.fewer_blocks if devices]


def _of_one_request(executable: Any, positions: int, names: Sequence[str]) -> Figure:
    """Return the microseconds of a step that is called alone, and those of each kind of node."""
    single = []
    for _ in range(CALLS):
        _set_tokens(executable.arrays, 1, positions)
        began = time.perf_counter()
        executable.run(1, 1)
        single.append(time.perf_counter() - began)
    nodes: dict[str, float] = defaultdict(float)
    for _ in range(PROFILES):
        for name, seconds in zip(names, executable.profile(1, 1)["work"][0], strict=True):
            nodes[re.sub(r"^layer \d+ ", "", name)] += 1e6 * float(seconds) / PROFILES
    of_nodes = {name: round(us, 2) for name, us in nodes.items() if us}
    return {"single": round(1e6 * statistics.median(single), 2), "nodes": of_nodes}


def seconds_of_steps(executable: Any, requests: int, positions: int, steps: int) -> list[float]:
    """Return the seconds of a decode step after prompts of `positions` tokens, one per round."""
    arrays = executable.arrays
    arrays["page_table"][:] = np.arange(arrays["page_table"].size).reshape(
        arrays["page_table"].shape
    )
    most = len(arrays["tokens"])
    for slot in range(requests):
        for first in range(0, positions, most):
            count = min(most, positions - first)
            arrays["tokens"][:count] = np.arange(first, first + count) % 97
            arrays["positions"][:count] = np.arange(first, first + count)
            arrays["slots"][:count] = slot
            arrays["selected"][0] = count - 1
            executable.run(count, 1)
    found = []
    for _ in range(ROUNDS + 1):
        _set_tokens(arrays, requests, positions)
        began = time.perf_counter()
        executable.run_steps(requests, steps, "next", [[]] * requests)
        found.append((time.perf_counter() - began) / steps)
    return found[1:]


def _set_tokens(arrays: dict[str, np.ndarray], requests: int, positions: int) -> None:
    arrays["tokens"][:requests] = np.arange(requests)
    arrays["positions"][:requests] = positions
    arrays["slots"][:requests] = arrays["selected"][:requests] = np.arange(requests)


def _figure(shape: Shape, kind: str, requests: int, positions: int) -> Figure:
    figure: Figure = {"way": parts.DECODE, "variant": kind, "dtype": "", "model": shape.name}
    return figure | {"shape": [requests, positions]}


def _us(seconds: Sequence[float]) -> list[float]:
    return [round(1e6 * each, 3) for each in seconds]


if __name__ == "__main__":
    sys.exit(main())
