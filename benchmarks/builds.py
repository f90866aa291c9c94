"""Time two builds of the C++ backend's extension in turn, in one process.

What a change to the kernels is worth: the clock of a shared machine may halve between two runs, but
hardly between two calls.

    python benchmarks/builds.py OLD/_native.so NEW/_native.so --json benchmarks/results/builds.json
"""

import argparse
import importlib.util
import inspect
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np

from threads import DTYPES, commit

HEAD = 128


def load(path, name):
    """Import an extension module from its file; the last word of its name has to be its own."""
    spec = importlib.util.spec_from_file_location(f"{name}._native", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(function, shape, dtype, rng):
    """Arrays for an op, by the names of its parameters; rope takes heads of 128."""
    names = inspect.signature(function).parameters
    if "cos" in names:
        shape = (shape[0], shape[1] // HEAD, HEAD)
    sizes = {
        "weight": shape[-1:],
        "bias": shape[-1:],
        "cos": (shape[0], 1, HEAD // 2),
        "sin": (shape[0], 1, HEAD // 2),
    }
    arrays = {"x", "residual", "gate", "up", *sizes}
    return [
        (2 * rng.standard_normal(sizes.get(name, shape))).astype(dtype)
        for name in names
        if name in arrays
    ]


def variants(function):
    """Keyword arguments for each of an op's formulas."""
    names = inspect.signature(function).parameters
    if "approximate" in names:
        return [{"approximate": "tanh"}, {"approximate": "none"}]
    return [{"interleaved": False}, {"interleaved": True}] if "interleaved" in names else [{}]


def compare(builds, op, shape, dtype, keywords, rounds, seconds):
    """Return the median microseconds of a call of each build, results written in place."""
    rng = np.random.default_rng(0)
    given = arguments(builds["new"].ops[op], shape, DTYPES[dtype], rng)
    outs = [np.zeros_like(given[0]) for _ in range(2 if op == "add_rms_norm" else 1)]
    keywords = {**keywords, "out": tuple(outs) if len(outs) > 1 else outs[0], "num_threads": 1}
    times = {name: [] for name in builds}
    calls = 1
    for round_ in range(-1, rounds):
        for name, build in builds.items():
            function = build.ops[op]
            start = time.perf_counter()
            for _ in range(calls):
                function(*given, **keywords)
            spent = (time.perf_counter() - start) / calls
            if round_ >= 0:
                times[name].append(1e6 * spent)
        if round_ < 0:
            calls = max(1, round(seconds / spent))
    return {name: round(statistics.median(values), 3) for name, values in times.items()}


def cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--old-commit", help="what the old build was made from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2e-3, help="of a round")
    options = parser.parse_args()

    builds = {"old": load(options.old, "old"), "new": load(options.new, "new")}
    cells = []
    for op in builds["new"].ops:
        for keywords in variants(builds["new"].ops[op]):
            for shape in ((1, 4096), (128, 4096)):
                for dtype in DTYPES:
                    case = (op, shape, dtype, keywords)
                    times = compare(builds, *case, options.rounds, options.seconds)
                    cell = {"op": op, **keywords, "shape": shape, "dtype": dtype, "us": times}
                    cell["ratio"] = round(times["old"] / times["new"], 2)
                    cells.append(cell)
                    print(f"{op} {keywords} {shape} {dtype}: {times} {cell['ratio']}", flush=True)
    if options.json:
        report = {
            "machine": {"cpu": cpu(), "python": platform.python_version(), "numpy": np.__version__},
            "old_commit": options.old_commit,
            "new_commit": commit(),
            "threads": 1,
            "median_of_rounds": options.rounds,
        }
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        head = json.dumps(report, indent=1)[:-2]
        options.json.write_text(f'{head},\n "cells": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
