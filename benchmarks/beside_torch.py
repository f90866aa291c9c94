"""Whether tensor_ops_cpp and torch slow each other down in one process.

Alternates a call of torch with one of tensor_ops_cpp, both with two threads, and compares the time
of each with its time when, in place of the other, one thread of NumPy is busy for as long and in as
much memory. Blocks of the three are taken in turn, either order of the imports in a new process.

    python benchmarks/beside_torch.py --json benchmarks/results/beside_torch.json
"""

import argparse
import functools
import importlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ORDERS = ("torch first", "tensor_ops_cpp first")
THREADS = 2
BLOCK = 150
WARM_UP = 10
SETTLE = 0.05  # seconds until threads that wait for more work by spinning have given up
FILLER = np.ones((64, 16384), np.float32)


def calls(torch, ours):
    """Return a pair of functions, torch's and ours, for each scenario."""
    x = np.random.default_rng(0).standard_normal((128, 4096), dtype=np.float32)
    out = np.empty_like(x)
    matrix = torch.randn(512, 512)
    tensor = torch.from_numpy(x.copy())
    silu = functools.partial(ours.silu, x, out=out)
    return {
        "silu": (functools.partial(torch.nn.functional.silu, tensor), silu),
        "matmul": (functools.partial(torch.matmul, matrix, matrix), silu),
    }


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def busy_for(seconds, array):
    """Walk over the array with one thread until the time is up."""
    end = time.perf_counter() + seconds
    while True:
        for part in array:
            if time.perf_counter() >= end:
                return
            np.negative(part, out=part)


def block(first, second):
    """Return the median seconds of two calls that alternate."""
    time.sleep(SETTLE)
    times = [(timed(first), timed(second)) for _ in range(WARM_UP + BLOCK)][WARM_UP:]
    return [statistics.median(values) for values in zip(*times, strict=True)]


def compare(theirs, ours, rounds):
    """Return microseconds of each call, beside the other and beside a busy thread."""
    their_time, our_time = block(theirs, ours)
    found = {"torch": {"beside": [], "alone": []}, "tensor_ops_cpp": {"beside": [], "alone": []}}
    for _ in range(rounds):
        their_beside, our_beside = block(theirs, ours)
        their_alone, _ = block(theirs, functools.partial(busy_for, our_time, FILLER))
        _, our_alone = block(functools.partial(busy_for, their_time, FILLER), ours)
        their_time, our_time = their_alone, our_alone
        for name, beside, alone in (
            ("torch", their_beside, their_alone),
            ("tensor_ops_cpp", our_beside, our_alone),
        ):
            found[name]["beside"].append(1e6 * beside)
            found[name]["alone"].append(1e6 * alone)
    return {name: summary(**times) for name, times in found.items()}


def summary(beside, alone):
    ratios = [a / b for a, b in zip(beside, alone, strict=True)]
    return {
        "beside_us": round(statistics.median(beside), 1),
        "alone_us": round(statistics.median(alone), 1),
        "ratio": round(statistics.median(beside) / statistics.median(alone), 3),
        "ratio_of_minima": round(min(beside) / min(alone), 3),
        "quartiles_of_block_ratios": [round(q, 3) for q in statistics.quantiles(ratios, n=4)],
    }


def measure(order, rounds):
    names = ["torch", "tensor_ops_cpp"]
    modules = {
        n: importlib.import_module(n) for n in (names if order == ORDERS[0] else names[::-1])
    }
    torch, ours = modules["torch"], modules["tensor_ops_cpp"]
    torch.set_num_threads(THREADS)
    ours.set_num_threads(THREADS)
    with torch.inference_mode():
        figures = {name: compare(*pair, rounds=rounds) for name, pair in calls(torch, ours).items()}
    return {"torch": torch.__version__, "figures": figures}


def in_new_process(order, rounds):
    command = [sys.executable, __file__, "--order", order, "--rounds", str(rounds)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rounds", type=int, default=20, help="blocks of each kind")
    parser.add_argument("--order", choices=ORDERS, help="measure in this process; print JSON")
    arguments = parser.parse_args()
    if arguments.order:
        print(json.dumps(measure(arguments.order, arguments.rounds)))
        return
    results = {order: in_new_process(order, arguments.rounds) for order in ORDERS}
    for order, result in results.items():
        for scenario, sides in result["figures"].items():
            for name, f in sides.items():
                print(
                    f"{order:22} {scenario:8} {name:16} beside {f['beside_us']:8.1f} us, alone "
                    f"{f['alone_us']:8.1f}, ratio {f['ratio']:.3f} {f['quartiles_of_block_ratios']}"
                )
    if arguments.json:
        from threads import facts

        arguments.json.write_text(json.dumps(facts() | {"orders": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
