"""Time two builds of the C++ backend in turn, each in a process of its own.

It shows what a change to the kernels, or to a call, is worth: the clock of a shared machine may
halve between two runs, but hardly between two rounds of a few milliseconds. Linux only.

    pip install --no-deps --target OLD OLD.whl
    pip install --no-deps --target NEW NEW.whl
    python benchmarks/builds.py OLD NEW --json benchmarks/results/builds.json
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import records
from comparison.cases import REUSED, Case, arguments, outputs
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS

SMALL = (1, 128)  # where the time of the call itself shows
ONE_THREAD = (SMALL, (1, 4096), (128, 4096))
MANY_ROWS = ((32, 4096), (128, 4096), (1024, 4096))  # that threads share


def placed(array, index):
    """Copy an array to an address that has the same last bits in every process.

    Those decide over more of a small call than most changes do.
    """
    block = np.zeros(array.nbytes + 2 * 4096 + 576 * index, np.uint8)
    start = -block.ctypes.data % 4096 + 576 * index
    view = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def call_of(function, case):
    """Return a function without arguments that computes the case, results written in place."""
    given = arguments(case)
    values = [placed(array, k) for k, array in enumerate(given.values())]
    outs = tuple(placed(array, len(values) + k) for k, array in enumerate(outputs(case, given)))
    keywords = {
        **VARIANTS[case.variant].options,
        "out": outs if len(outs) > 1 else outs[0],
        "num_threads": case.threads,
    }
    return lambda: function(*values, **keywords)


def serve(folder, cpus, connection):
    """Time what comes through the connection with the build in a folder: a case, or calls of it."""
    os.sched_setaffinity(0, cpus)
    sys.path.insert(0, str(folder))
    import tensor_ops_cpp

    if Path(tensor_ops_cpp.__file__).parent.parent != folder:
        raise ImportError(f"tensor_ops_cpp came from {tensor_ops_cpp.__file__}, not from {folder}")
    connection.send(list(tensor_ops_cpp.ops))
    call = None
    while (asked := connection.recv()) is not None:
        if isinstance(asked, Case):
            call = call_of(tensor_ops_cpp.ops[VARIANTS[asked.variant].op.name], asked)
            asked = 1
        start = time.perf_counter()
        for _ in range(asked):
            call()
        connection.send((time.perf_counter() - start) / asked)


class Build:
    """A build in its process."""

    def __init__(self, folder, cpus):
        self.connection, end = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        context.Process(target=serve, args=(folder.resolve(), cpus, end), daemon=True).start()
        end.close()
        self.ops = self.connection.recv()

    def seconds(self, asked):
        """Return the seconds of a call: of so many calls, or the first one of a case."""
        self.connection.send(asked)
        return self.connection.recv()


def compare(builds, case, rounds, seconds):
    """Return the median microseconds of a call of each build."""
    for build in builds.values():
        build.seconds(case)
    calls = {}
    for name, build in builds.items():
        calls[name] = max(1, round(seconds / build.seconds(3)))
    times = {name: [] for name in builds}
    for _ in range(rounds):
        for name, build in builds.items():
            times[name].append(1e6 * build.seconds(calls[name]))
    return {name: round(statistics.median(values), 4) for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="the folder that holds the old tensor_ops_cpp")
    parser.add_argument("new", type=Path)
    parser.add_argument("--old-commit", help="what the old build was made from")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2e-3, help="of a round")
    options = parser.parse_args()

    # The clocks of two processors differ, so that both builds take their turns on the same ones.
    cpus = sorted(os.sched_getaffinity(0))[: options.threads]
    builds = {"old": Build(options.old, cpus), "new": Build(options.new, cpus)}
    cells = []
    for name, variant in VARIANTS.items():
        if variant.op.name not in set(builds["old"].ops) & set(builds["new"].ops):
            continue
        for shape in ONE_THREAD if options.threads == 1 else MANY_ROWS:
            for dtype in options.dtypes:
                case = Case(name, dtype, shape, options.threads, REUSED)
                times = compare(builds, case, options.rounds, options.seconds)
                what = {"op": variant.op.name, **variant.options}
                cell = what | {"shape": shape, "dtype": dtype, "us": times}
                cell["ratio"] = round(times["old"] / times["new"], 2)
                cells.append(cell)
                print(f"{name} {shape} {dtype}: {times} {cell['ratio']}", flush=True)
    if options.json:
        report = {
            **records.origin(1),
            "old_commit": options.old_commit,
            "threads": options.threads,
            "median_of_rounds": options.rounds,
        }
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        head = json.dumps(report, indent=1)[:-2]
        records.write(options.json, f'{head},\n "cells": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
