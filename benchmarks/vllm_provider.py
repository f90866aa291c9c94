"""Time of a call of vLLM's norms by the provider tensor_ops, and by vLLM's native one.

Each is timed as vLLM calls it with ``enforce_eager``, and within a function that torch.compile has
compiled as vLLM does for CPUs. All take turns, on one thread, whose processor time is counted, so
that other programs do not add to it. Freed memory is
kept, as by tcmalloc, which vLLM recommends.

    python benchmarks/vllm_provider.py --json benchmarks/results/vllm_provider.json
    python benchmarks/vllm_provider.py --report

The first needs vLLM, as the environment of ``nox -s vllm`` has it. Both bring the page up to date.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pages import update

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "vllm_provider.json"
PAGE = ROOT / "docs" / "guides" / "vllm.md"
OPS = ("rms_norm", "fused_add_rms_norm")
DTYPES = ("bfloat16", "float32")
ROWS = (1, 16, 512)
WIDTH = 2048
PROVIDERS = ("native", "tensor_ops")
MODES = ("eager", "compiled")
# Calls that are timed together take about so long.
BLOCK_SECONDS = 0.002


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, default=RECORD, help="write the figures here")
    parser.add_argument("--report", action="store_true", help="write the table of a record only")
    parser.add_argument("--rounds", type=int, default=51, help="times that each is timed")
    options = parser.parse_args()
    if not options.report:
        record = measure(options.rounds)
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    made = blocks(json.loads(options.json.read_text(encoding="utf-8")))
    update(PAGE, made)
    print(*made.values(), sep="\n")


def measure(rounds: int) -> dict[str, Any]:
    """Return every figure, in seconds."""
    import torch
    import vllm
    from vllm import ir

    from tensor_ops_torch.vllm_provider import register
    from threads import facts
    from torch_models import keep_memory

    keep_memory()
    register()
    torch.set_num_threads(1)
    # vLLM sets this on CPUs: torch.compile sees the functions of the provider, not the op.
    ir.set_default_torch_wrap(False)
    versions = {"vllm": vllm.__version__, "torch": torch.__version__}
    with torch.inference_mode():
        return facts() | versions | {"calls": list(calls(rounds))}


def calls(rounds: int) -> Iterator[dict[str, Any]]:
    import torch
    from vllm import ir

    for name in OPS:
        op = getattr(ir.ops, name)
        for dtype in DTYPES:
            for rows in ROWS:
                kind = getattr(torch, dtype)
                given = op.generate_inputs(num_tokens=rows, hidden_size=WIDTH, dtype=kind)
                sides = {
                    (mode, provider): Side(op, given, mode, provider)
                    for mode in MODES
                    for provider in PROVIDERS
                }
                times = in_turn(sides, rounds)
                yield {
                    "op": name,
                    "dtype": dtype,
                    "rows": rows,
                    "seconds": {
                        mode: {provider: times[mode, provider] for provider in PROVIDERS}
                        for mode in MODES
                    },
                }


class Side:
    """A way to compute an op: eagerly or compiled, by a provider."""

    def __init__(self, op: Any, given: tuple[Any, ...], mode: str, provider: str) -> None:
        import torch

        self.op, self.given = op, given
        self.priority = list(dict.fromkeys((provider, "native")))
        self.call: Callable[..., Any] = op
        if mode == "compiled":

            def compute(*args: Any) -> Any:
                return op(*args)

            # torch.compile keeps what it has compiled by the code that a function has.
            compute.__code__ = compute.__code__.replace()
            self.call = torch.compile(compute, fullgraph=True, dynamic=False)
        with op.set_priority(self.priority):
            assert op.dispatch(*given).provider == provider
            self.call(*given)
            self.count = max(1, int(BLOCK_SECONDS / self._seconds(3)))

    def time(self) -> float:
        """Return the seconds of a call, from several in a row."""
        with self.op.set_priority(self.priority):
            self.call(*self.given)
            return self._seconds(self.count)

    def _seconds(self, count: int) -> float:
        call, given = self.call, self.given
        start = time.thread_time()
        for _ in range(count):
            call(*given)
        return (time.thread_time() - start) / count


def in_turn(sides: dict[Any, Side], rounds: int) -> dict[Any, float]:
    """Return the median of each side's times."""
    times: dict[Any, list[float]] = {key: [] for key in sides}
    for _ in range(rounds):
        for key, side in sides.items():
            times[key].append(side.time())
    return {key: statistics.median(values) for key, values in times.items()}


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the table of the page."""
    lines = [
        f"Microseconds of processor time of a call, on one thread of {record['device']}, for rows "
        f"of {WIDTH} with vLLM {record['vllm']} and torch {record['torch']}:",
        "",
        "| op | dtype | rows | eager: native | tensor_ops | compiled: native | tensor_ops |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for call in record["calls"]:
        times = (call["seconds"][mode][provider] for mode in MODES for provider in PROVIDERS)
        cells = " | ".join(f"{1e6 * each:.{0 if each > 1e-4 else 1}f}" for each in times)
        lines.append(f"| `{call['op']}` | {call['dtype']} | {call['rows']} | {cells} |")
    return {"calls of vLLM's norms": "\n".join(lines)}


if __name__ == "__main__":
    main()
