"""How fast decoding is beside other processes that take its processors.

The same model is open once for each number of workers. They take turns, beside the same processes,
which do nothing but run.

    python benchmarks/decode_neighbours.py MODEL.gguf --json RECORD.json
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from decode_blocks import run, setting_of

NEIGHBOURS = (0, 1, 2, 4)
PROMPT, NEW = 32, 128


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Return tokens per second by neighbours and workers, round by round."""
    import tensor_ops_decode
    from threads import facts

    rates: dict[str, dict[str, list[float]]] = {}
    with ExitStack() as stack:
        kernels = {}
        for workers in (os.cpu_count() or 1, 1):
            kernel = tensor_ops_decode.PersistentKernel(
                backend="cpp", model=path, num_workers=workers, max_seq_length=512
            )
            kernels[str(workers)] = stack.enter_context(kernel)
            kernel.compile(progress=lambda done, size: None)  # packs all weights
        for count in NEIGHBOURS:
            by_workers: dict[str, list[float]] = {workers: [] for workers in kernels}
            with busy_processes(count):
                for number in range(rounds + 1):
                    for workers, kernel in kernels.items():
                        rate = decode(kernel)
                        if number > 0:  # the first finds out how many workers are of use
                            by_workers[workers].append(rate)
            rates[str(count)] = by_workers
    how = {"prompt": PROMPT, "new": NEW, "rounds": rounds}
    return facts() | {"model": path.name, "how": how, "tokens_per_second": rates}


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Have so many processes that never wait."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def decode(kernel: Any) -> float:
    """Return tokens per second."""
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
        "| busy processes | workers | tokens per second | quartiles |",
        "|---|---|---|---|",
    ]
    for count, by_workers in rates.items():
        for workers, values in by_workers.items():
            low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
            lines.append(f"| {count} | {workers} | {middle:,.0f} | {low:,.0f} to {high:,.0f} |")
    return {"neighbours-setting": setting_of(record), "neighbours-speed": "\n".join(lines)}


if __name__ == "__main__":
    run(__doc__, measure, blocks)
