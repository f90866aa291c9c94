"""Speedup of `tensor_ops_cpp` by a second thread, and the size from which on there is one.

Four tables; one thread, two, and `default`, what a call chooses by itself, are taken in turn in
short rounds:

- situations: silu called again and again, after idling, between matrix products (whose library has
  threads of its own), and beside another process that keeps one processor busy;
- costs: nanoseconds that one thread takes for an element, by op and dtype, which the ops declare;
- break-even: the sizes around those from which on two threads pay, hot and after idling;
- idle: what a call takes after 20 ms of idling, relative to what it takes again and again.

    python benchmarks/threads.py --json benchmarks/results/threads_pool.json
"""

import argparse
import functools
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import tensor_ops_cpp
from comparison.cases import REUSED, Case, arguments, outputs
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import named

THREADS = {"one": 1, "two": 2, "default": None}
N = 4096
IDLE = 0.02


def call(op, dtype, rows, n=N):
    """Return a call of the op on (rows, n), which takes num_threads."""
    (variant, *_) = named(op)
    case = Case(variant.name, dtype, (rows, n), 1, REUSED)
    values = arguments(case)
    out = outputs(case, values)
    out = out if len(out) > 1 else out[0]
    return functools.partial(tensor_ops_cpp.ops[op], *values.values(), out=out)


def nothing():
    pass


def idle():
    time.sleep(IDLE)


def multiply(matrix=np.ones((512, 512), np.float32)):  # noqa: B008
    np.matmul(matrix, matrix)


def microseconds(function, between, calls):
    times = []
    for _ in range(calls):
        between()
        start = time.perf_counter()
        function()
        times.append(1e6 * (time.perf_counter() - start))
    return times


def compare(function, between, rounds, calls, warm_up=0):
    """Return medians, minima and 90th percentiles for each number of threads, taken in turn."""
    times = {name: [] for name in THREADS}
    for _ in range(rounds):
        for name, threads in THREADS.items():
            one_call = functools.partial(function, num_threads=threads)
            times[name] += microseconds(one_call, between, warm_up + calls)[warm_up:]
    return {name: summary(values) for name, values in times.items()}


def summary(times):
    return {
        "median_us": round(statistics.median(times), 1),
        "min_us": round(min(times), 1),
        "p90_us": round(statistics.quantiles(times, n=10)[-1], 1),
    }


def again_and_again(function, rounds=30):
    return compare(function, nothing, rounds, calls=10, warm_up=5)


def after_idling(function, rounds=20):
    return compare(function, idle, rounds, calls=2)


def situations(rows):
    silu = call("silu", "float32", rows)
    return {
        "again and again": again_and_again(silu),
        "after 20 ms of idling": after_idling(silu),
        "between matrix products": compare(silu, multiply, rounds=20, calls=4),
        "beside a busy process": beside_a_busy_process(silu),
    }


def beside_a_busy_process(function):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
        return compare(function, nothing, rounds=20, calls=10, warm_up=5)
    finally:
        busy.kill()
        busy.wait()


def costs(rows=16):
    """Nanoseconds per element on one thread: minima, since all that disturbs adds."""
    return {
        op: {
            dtype: round(
                1e3
                * min(
                    microseconds(
                        functools.partial(call(op, dtype, rows), num_threads=1), nothing, 300
                    )
                )
                / (rows * N),
                3,
            )
            for dtype in DTYPES
        }
        for op in tensor_ops_cpp.ops
    }


def break_even(op, dtype):
    """The three tables for sizes from 8 K to 2 M elements."""
    return {
        f"({rows}, {N})": {
            "again and again": again_and_again(call(op, dtype, rows), rounds=15),
            "after 20 ms of idling": after_idling(call(op, dtype, rows), rounds=10),
        }
        for rows in (2, 4, 8, 16, 32, 64, 128, 256, 512)
    }


def idle_ratios(sizes):
    """Cost of idling, relative to the same number of threads called again and again."""
    return {
        size: {
            threads: {
                key: round(table["after 20 ms of idling"][threads][key] / hot[key], 2)
                for key in ("median_us", "min_us")
            }
            for threads, hot in table["again and again"].items()
        }
        for size, table in sizes.items()
    }


def facts():
    return {
        "commit": commit(),
        "machine": platform.processor() or platform.machine(),
        "numpy": np.__version__,
        "tensor_ops_cpp": tensor_ops_cpp.info()["version"],
        "device": tensor_ops_cpp.info()["device_name"],
        "optimization": {
            key: value if isinstance(value, (str, int, bool, type(None))) else list(value)
            for key, value in tensor_ops_cpp.get_optimization_info().items()
        },
    }


def commit():
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def print_table(title, table):
    print(title)
    for name, result in table.items():
        cells = (
            f"{threads} {t['median_us']:8.1f} / {t['min_us']:8.1f} / {t['p90_us']:8.1f}"
            for threads, t in result.items()
        )
        print(f"  {name:26} us, median / minimum / 90th percentile:  {'   '.join(cells)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--situations-only", action="store_true", help="to compare two builds")
    arguments = parser.parse_args()
    figures = {}
    for rows in (128, 1024):
        title = f"silu ({rows}, {N}) float32"
        figures[title] = situations(rows)
        print_table(title, figures[title])
    if not arguments.situations_only:
        figures["nanoseconds per element"] = costs()
        for op in ("rms_norm", "silu", "gelu", "softmax"):
            for dtype in ("float32", "bfloat16", "float64"):
                title = f"break-even {op} {dtype}"
                figures[title] = break_even(op, dtype)
                for size, table in figures[title].items():
                    print_table(f"{title} {size}", table)
                figures[f"idle {op} {dtype}"] = idle_ratios(figures[title])
    if arguments.json:
        arguments.json.write_text(json.dumps(facts() | figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
