"""Cost of float32 parameters and residuals beside half arrays in `tensor_ops_cpp`, per byte moved.

Each op on (rows, 4096), one thread, in one dtype and in every mixture, in turn in short rounds of
one process. Bytes moved are those of all arguments and results, each counted once.

    python benchmarks/mixed_dtypes.py --json benchmarks/results/mixed_dtypes.json
    python benchmarks/mixed_dtypes.py --report benchmarks/results/mixed_dtypes.json
"""

import argparse
import functools
import json
import statistics
import time
from pathlib import Path

import numpy as np

import pages
import tensor_ops_cpp
from records import write_json
from tensor_ops.ops import OPS
from threads import DTYPES, facts

PAGE = pages.ROOT / "docs" / "backends" / "cpp.md"

N, HEAD = 4096, 128
ROWS = (1, 128, 2048)
SECONDS = 0.25  # of a round's calls together, for each op


def shapes(op, rows):
    if op == "rope":  # the heads of a row share their angles
        return {
            "x": (rows, N // HEAD, HEAD),
            "cos": (rows, 1, HEAD // 2),
            "sin": (rows, 1, HEAD // 2),
        }
    roles = {name: kind.role for name, kind in OPS[op].kinds.items() if kind.is_array}
    return {name: (rows, N) if role == "rows" else (N,) for name, role in roles.items()}


def draw(name, shape, rng):
    if name in ("cos", "sin"):
        return getattr(np, name)(rng.uniform(0, 100, shape))
    return rng.standard_normal(shape)


def aligned(values):
    """Return a copy that begins at a cache line, as large results do."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    copy = memory[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def call(op, half, rows, wide):
    """Return a call of an op whose arguments in `wide` are float32, and the bytes it moves."""
    rng = np.random.default_rng(0)
    values = {
        name: aligned(draw(name, shape, rng).astype("f" if name in wide else DTYPES[half]))
        for name, shape in shapes(op, rows).items()
    }
    outs = tuple(aligned(np.zeros_like(values[like])) for like in OPS[op].results_like)
    moved = sum(each.nbytes for each in (*values.values(), *outs))
    out = outs if len(outs) > 1 else outs[0]
    return functools.partial(tensor_ops_cpp.ops[op], **values, out=out, num_threads=1), moved


def seconds_of(function, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def measure(op, half, rows):
    mixtures = [(), *OPS[op].mixtures]
    calls = [call(op, half, rows, wide) for wide in mixtures]
    for function, _ in calls:
        function()
    once = seconds_of(calls[0][0], 3)
    repeats = max(1, int(2e-4 / once))
    rounds = max(15, int(SECONDS / (once * repeats * len(calls))))
    times = [[] for _ in calls]
    for _ in range(rounds):
        for (function, _), seconds in zip(calls, times, strict=True):
            seconds.append(seconds_of(function, repeats))
    medians = [statistics.median(seconds) for seconds in times]
    one_dtype = medians[0] / calls[0][1]
    return [
        {
            "op": op,
            "dtype": half,
            "rows": rows,
            "float32": list(wide),
            "median_us": round(1e6 * median, 2),
            "bytes": moved,
            "time_per_byte": round(median / moved / one_dtype, 3),  # of that in one dtype
        }
        for wide, median, (_, moved) in zip(mixtures, medians, calls, strict=True)
    ]


def blocks(record):
    """Return the block of the page: the times per byte, relative to those of one dtype."""
    cells = {
        (each["op"], tuple(each["float32"]), each["dtype"], each["rows"]): each["time_per_byte"]
        for each in record["calls"]
    }
    columns = [(half, rows) for half in ("float16", "bfloat16") for rows in ROWS]
    head = " | ".join(f"{half}, {rows} row{'s' * (rows > 1)}" for half, rows in columns)
    lines = [f"| op | in float32 | {head} |", f"| --- | --- |{' ---: |' * len(columns)}"]
    for op, wide in dict.fromkeys((op, wide) for op, wide, *_ in cells if wide):
        figures = " | ".join(f"{cells[op, wide, *column]:.2f}" for column in columns)
        lines.append(f"| `{op}` | {', '.join(f'`{name}`' for name in wide)} | {figures} |")
    return {"mixed dtypes": "\n".join([*lines, "", f"One thread of {record['device']}."])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", type=Path, help="measure, and keep the figures in this file")
    what.add_argument("--report", type=Path, help="show kept figures on the page, and no more")
    options = parser.parse_args()
    if options.report:
        pages.update(PAGE, blocks(json.loads(options.report.read_text(encoding="utf-8"))))
        return
    found = []
    for op in [name for name in OPS if OPS[name].mixtures]:
        for half in ("float16", "bfloat16"):
            for rows in ROWS:
                found += measure(op, half, rows)
                for each in found[-len(OPS[op].mixtures) - 1 :]:
                    print(each, flush=True)
    record = {**facts(), "threads": 1, "n": N, "calls": found}
    write_json(options.json, record)


if __name__ == "__main__":
    main()
