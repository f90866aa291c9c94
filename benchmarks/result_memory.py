"""Cost of new results in `tensor_ops_cpp`, with its pool and without, beside `out=`.

Times rms_norm in float32 with one thread: results dropped by the next call, and results that the
caller keeps. A limit of 0 turns the pool off, so that results are NumPy's.

    python benchmarks/result_memory.py --json benchmarks/results/result_memory.json
"""

import statistics
import time

import numpy as np

import tensor_ops_cpp
from harness import command
from records import write_json
from threads import facts

N = 4096
ROWS = (16, 64, 256, 1024, 2048, 4096)  # 256 KiB to 64 MiB
LIMIT = tensor_ops_cpp.pool_info()["limit"]


def arguments(rows):
    rng = np.random.default_rng(0)
    return rng.standard_normal((rows, N), dtype=np.float32), np.ones(N, np.float32)


def dropped(x, weight, calls, out=None):
    """Return the microseconds of a call whose result the next one drops."""
    start = time.perf_counter()
    for _ in range(calls):
        tensor_ops_cpp.rms_norm(x, weight, out=out, num_threads=1)
    return 1e6 * (time.perf_counter() - start) / calls


def kept(x, weight, calls):
    """Return the microseconds of a call whose result stays."""
    start = time.perf_counter()
    results = [tensor_ops_cpp.rms_norm(x, weight, num_threads=1) for _ in range(calls)]
    return 1e6 * (time.perf_counter() - start) / len(results)


def measure(rows, rounds):
    x, weight = arguments(rows)
    out = np.zeros_like(x)
    calls = max(2, min(8, 2**25 // x.nbytes))
    times = {name: [] for name in ("out", "pool", "no_pool", "kept_pool", "kept_no_pool")}
    for _ in range(rounds):
        times["out"].append(dropped(x, weight, calls, out))
        for name, limit in (("pool", LIMIT), ("no_pool", 0)):
            tensor_ops_cpp.set_pool_limit(limit)
            dropped(x, weight, 2)
            times[name].append(dropped(x, weight, calls))
            tensor_ops_cpp.trim_pool()
            times[f"kept_{name}"].append(kept(x, weight, calls))
            tensor_ops_cpp.trim_pool()
    tensor_ops_cpp.set_pool_limit(LIMIT)
    medians = {name: round(statistics.median(values), 1) for name, values in times.items()}
    return {"bytes": x.nbytes, "median_us": medians}


def main():
    parser = command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    sizes = []
    for rows in ROWS:
        sizes.append(measure(rows, options.rounds))
        print(sizes[-1], flush=True)
    report = {**facts(), "rounds": options.rounds, "sizes": sizes}
    write_json(options.json, report)


if __name__ == "__main__":
    main()
