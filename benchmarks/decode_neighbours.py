"""How fast decoding is beside other processes that take its processors.

The same model decodes with fixed numbers of workers and with the number that the executable
chooses, out of one worker and out of two for each processor. They take turns, beside the same
processes, which do nothing but run.

    python benchmarks/decode_neighbours.py MODEL.gguf --json RECORD.json
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from decode_blocks import run, setting_of

NEIGHBOURS = (0, 1, 2, 4)
PROMPT, NEW = 32, 128
CHOSEN = "of use"


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Return tokens per second by neighbours and workers, round by round."""
    import tensor_ops_decode
    from threads import facts

    processors = os.cpu_count() or 1
    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:

        def opened(workers: int) -> Any:
            kernel = tensor_ops_decode.PersistentKernel(
                backend="cpp", model=path, num_workers=workers, max_seq_length=512
            )
            stack.enter_context(kernel)
            kernel.compile(progress=lambda done, size: None)  # packs all weights
            return kernel

        kernel = opened(processors)
        fixed = sorted({1, processors // 2, processors - 1, processors} - {0})
        ways = {str(workers): partial(decode, kernel, workers) for workers in fixed}
        ways[f"{CHOSEN} of {processors}"] = partial(decode, kernel)
        ways[f"{CHOSEN} of {2 * processors}"] = partial(decode, opened(2 * processors))
        for count in NEIGHBOURS:
            with busy_processes(count):
                rates[str(count)] = take_turns(ways, rounds)
    how = {"prompt": PROMPT, "new": NEW, "rounds": rounds}
    return facts() | {"model": path.name, "how": how, "tokens_per_second": rates}


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run `count` processes that never wait."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def take_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the rates of each way."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            rate = way()
            if number > 0:  # the first finds out how many workers are of use
                rates[name].append(rate)
    return rates


def decode(kernel: Any, workers: int | None = None) -> float:
    """Return tokens per second with a fixed number of workers, or with the executable's choice."""
    kernel._session.executable.hold_workers(workers)
    kernel.reset()
    kernel.add_request(range(100, 100 + PROMPT), ignore_eos=True)
    while not kernel():
        pass
    start = time.perf_counter()
    kernel.run(NEW)
    return NEW / (time.perf_counter() - start)


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    rates = record["tokens_per_second"]
    lines = [
        "| busy processes | workers | tokens per second | quartiles | of the best fixed number |",
        "|---|---|---|---|---|",
    ]
    for count, by_workers in rates.items():
        fixed = [values for workers, values in by_workers.items() if CHOSEN not in workers]
        best = max(fixed, key=statistics.median)
        for workers, values in by_workers.items():
            low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
            part = statistics.median(a / b for a, b in zip(values, best, strict=True))
            lines.append(
                f"| {count} | {workers} | {middle:,.0f} | {low:,.0f} to {high:,.0f} | {part:.2f} |"
            )
    return {"neighbours-setting": setting_of(record), "neighbours-speed": "\n".join(lines)}


if __name__ == "__main__":
    run(__doc__, measure, blocks)
