"""What a second thread is worth to `tensor_ops_cpp` when the processors are not its own.

Times silu on (128, 4096) float32 with one thread and with all, in turn: called again and again,
after idling, between matrix products (whose library has threads of its own), and beside another
process that keeps one processor busy.

    python benchmarks/threads.py --json benchmarks/results/threads.json
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import tensor_ops_cpp

X = np.random.default_rng(0).standard_normal((128, 4096), dtype=np.float32)
OUT = np.empty_like(X)
MATRIX = np.random.default_rng(1).standard_normal((512, 512), dtype=np.float32)


def nothing():
    pass


def idle():
    time.sleep(0.02)


def multiply():
    np.matmul(MATRIX, MATRIX)


def measure(between, threads, rounds):
    """Return the microseconds of each call, `between` going before it."""
    times = []
    for _ in range(rounds):
        between()
        start = time.perf_counter()
        tensor_ops_cpp.silu(X, out=OUT, num_threads=threads)
        times.append(1e6 * (time.perf_counter() - start))
    return times


def compare(between, rounds, repeats=5):
    """Return medians and 90th percentiles for one thread and for all, taken in turn."""
    times = {"one": [], "all": []}
    for _ in range(repeats):
        for name, threads in (("one", 1), ("all", tensor_ops_cpp.get_num_threads())):
            times[name] += measure(between, threads, rounds)
    return {
        name: {
            "median_us": round(statistics.median(values), 1),
            "p90_us": round(statistics.quantiles(values, n=10)[-1], 1),
        }
        for name, values in times.items()
    }


def compare_beside_a_busy_process(rounds):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.5)
        return compare(nothing, rounds)
    finally:
        busy.kill()
        busy.wait()


def commit():
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    measure(nothing, tensor_ops_cpp.get_num_threads(), 50)
    figures = {
        "again and again": compare(nothing, 200),
        "after 20 ms of idling": compare(idle, 30),
        "between matrix products": compare(multiply, 60),
        "beside a busy process": compare_beside_a_busy_process(60),
    }
    for name, result in figures.items():
        cells = (
            f"{threads} {t['median_us']:8.1f} / {t['p90_us']:8.1f}" for threads, t in result.items()
        )
        print(f"{name:26} us, median / 90th percentile:  {'   '.join(cells)}")
    if arguments.json:
        facts = {
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
        arguments.json.write_text(
            json.dumps(facts | {"silu (128, 4096) float32": figures}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
