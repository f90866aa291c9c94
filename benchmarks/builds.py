"""Time two builds of the C++ backend's extension in turn, in one process.

What a change to the kernels is worth: the clock of a shared machine may halve between two runs, but
hardly between two calls.

    python benchmarks/builds.py OLD/_native.so NEW/_native.so --json benchmarks/results/builds.json
"""

import argparse
import importlib.util
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np

from comparison.cases import REUSED, Case, arguments, outputs
from tensor_ops import machine
from tensor_ops.arguments import DTYPES
from tensor_ops.variants import named
from threads import commit

MANY_ROWS = ((32, 4096), (128, 4096), (1024, 4096))  # that threads share


def load(path, name):
    """Import an extension module from its file; the last word of its name has to be its own."""
    spec = importlib.util.spec_from_file_location(f"{name}._native", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(builds, variant, shape, dtype, threads, rounds, seconds):
    """Return the median microseconds of a call of each build, results written in place."""
    case = Case(variant.name, dtype, shape, threads, REUSED)
    given = arguments(case)
    outs = outputs(case, given)
    keywords = {
        **variant.options,
        "out": outs if len(outs) > 1 else outs[0],
        "num_threads": threads,
    }
    times = {name: [] for name in builds}
    calls = 1
    for round_ in range(-1, rounds):
        for name, build in builds.items():
            function = build.ops[variant.op.name]
            start = time.perf_counter()
            for _ in range(calls):
                function(*given.values(), **keywords)
            spent = (time.perf_counter() - start) / calls
            if round_ >= 0:
                times[name].append(1e6 * spent)
        if round_ < 0:
            calls = max(1, round(seconds / spent))
    return {name: round(statistics.median(values), 3) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--old-commit", help="what the old build was made from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2e-3, help="of a round")
    options = parser.parse_args()

    builds = {"old": load(options.old, "old"), "new": load(options.new, "new")}
    cells = []
    for op in builds["new"].ops:
        for variant in named(op):
            for shape in ((1, 4096), (128, 4096)) if options.threads == 1 else MANY_ROWS:
                for dtype in DTYPES:
                    effort = (options.threads, options.rounds, options.seconds)
                    times = compare(builds, variant, shape, dtype, *effort)
                    what = {"op": op, **variant.options}
                    cell = what | {"shape": shape, "dtype": dtype, "us": times}
                    cell["ratio"] = round(times["old"] / times["new"], 2)
                    cells.append(cell)
                    print(f"{variant.name} {shape} {dtype}: {times} {cell['ratio']}", flush=True)
    if options.json:
        report = {
            "machine": {
                "cpu": machine.cpu_name(),
                "python": platform.python_version(),
                "numpy": np.__version__,
            },
            "old_commit": options.old_commit,
            "new_commit": commit(),
            "threads": options.threads,
            "median_of_rounds": options.rounds,
        }
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        head = json.dumps(report, indent=1)[:-2]
        options.json.write_text(f'{head},\n "cells": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
