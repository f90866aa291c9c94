"""What it costs to keep states of a hybrid, and to keep a prompt in a file.

Steps that leave their states in several ways take turns: those of one token, and of four of one
request, as where three are guessed. Then a prompt is computed and saved, and loaded in turn with
reading the bytes of its file. The model is random, of the shape of Qwen 3.5 with 0.8 billion
weights; a file that is missing is written.

    python benchmarks/decode_states.py .benchmarks/decode/hybrid-0.8B-Q4_K.gguf --json RECORD.json
"""

import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensor_ops_cpp
from decode_blocks import run, setting_of
from decode_peers.hybrids import HYBRIDS, write_hybrid
from tensor_ops_decode import PersistentKernel, open_weights
from tensor_ops_decode.executors.sources import TensorArrays

PROMPT, POSITION = 20_000, 100
# The states that tokens begin with and leave; the first is that of the slot.
STEPS = {
    "one token, in place": ([0], [0]),
    "one token, leaves another": ([0], [1]),
    "four tokens, in place": ([0] * 4, [0] * 4),
    "four tokens, leave one each": ([0, 0, 1, 2], [0, 1, 2, 3]),
}


def measure(path: Path, rounds: int) -> dict[str, Any]:
    """Return the seconds of steps and of prompts, round by round."""
    from threads import facts

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_hybrid(path, HYBRIDS["0.8B"], "Q4_K")
    return facts() | {
        "how": {"rounds": rounds, "prompt": PROMPT},
        "model": path.name,
        "steps": _steps(path, rounds),
        "prompt": _prompt(path, rounds),
    }


def _steps(path: Path, rounds: int) -> dict[str, list[float]]:
    limits = {"max_seq_length": 512, "max_num_batched_requests": 1, "max_num_snapshots": 1}
    with PersistentKernel(model=path, backend="cpp", num_speculative_tokens=3, **limits) as kernel:
        program = kernel.program
    tensors = TensorArrays(program, {}, open_weights(path))
    executable = tensor_ops_cpp.compile_program(program.to_json(), tensors)
    arrays = executable.arrays
    arrays["page_table"][0] = range(arrays["page_table"].shape[1])
    seconds: dict[str, list[float]] = {name: [] for name in STEPS}
    for number in range(rounds + 1):
        for name, (before, after) in STEPS.items():
            count = len(before)
            arrays["tokens"][:count] = range(1, count + 1)
            arrays["positions"][:count] = range(POSITION, POSITION + count)
            arrays["selected"][:count] = range(count)
            arrays["state_before"][:count], arrays["state_after"][:count] = before, after
            step = functools.partial(executable.run, count, count)
            each = [_seconds(step) for _ in range(8)]
            if number > 0:
                seconds[name].append(statistics.median(each))
    executable.close()
    return seconds


def _prompt(path: Path, rounds: int) -> dict[str, Any]:
    tokens = np.random.default_rng(0).integers(0, 32000, PROMPT).tolist()
    limits = {"max_seq_length": PROMPT + 16, "max_num_batched_requests": 1}
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as folder,
        PersistentKernel(model=path, backend="cpp", **limits) as kernel,
    ):
        file = Path(folder, "prompt")
        kernel.compile(lambda done, size: None)
        computed = _seconds(lambda: kernel.save_prompt(file, tokens))
        seconds: dict[str, list[float]] = {"load": [], "read": []}
        for _ in range(rounds):
            kernel.reset()
            seconds["load"].append(_seconds(lambda: kernel.load_prompt(file)))
            seconds["read"].append(_seconds(file.read_bytes))
        return {"bytes": file.stat().st_size, "computed": computed, **seconds}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    lines = ["| step | milliseconds | beside in place | quartiles |", "|---|---|---|---|"]
    for name, seconds in record["steps"].items():
        in_place = record["steps"][f"{name.partition(',')[0]}, in place"]
        ratios = [a / b for a, b in zip(seconds, in_place, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        lines.append(
            f"| {name} | {statistics.median(seconds) * 1e3:.1f} "
            f"| {middle:.2f} | {low:.2f} to {high:.2f} |"
        )
    prompt = record["prompt"]
    load, read = (statistics.median(prompt[name]) for name in ("load", "read"))
    kept = (
        f"{record['how']['prompt']:,} tokens took {prompt['computed']:.0f} seconds to compute and "
        f"to save, in {prompt['bytes'] / 1e6:,.0f} MB, and {load:.2f} seconds to load. Reading the "
        f"file's bytes took {read:.2f}."
    )
    return {
        "states-setting": setting_of(record),
        "states-steps": "\n".join(lines),
        "states-prompt": kept,
    }


if __name__ == "__main__":
    run(__doc__, measure, blocks)
