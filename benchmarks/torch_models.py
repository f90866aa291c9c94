"""What the swapped modules are worth in a Llama of transformers, and what a call costs, on the CPU.

A random-weight Llama is timed as it comes and with its modules swapped, in turn, in one process:
reading a prompt (prefill) and writing tokens one by one (decode). Then each kind of swapped module
alone, at the same shapes, and each operator on few elements beside PyTorch's own functions.

    nox -s bench_torch -- --json benchmarks/results/torch_models.json
    nox -s bench_torch -- --report benchmarks/results/torch_models.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "pytorch_performance.md"
HIDDEN, LAYERS, HEADS, INTERMEDIATE, VOCABULARY = 1024, 8, 16, 2816, 32000
PROMPT, WRITTEN = 128, 16
DTYPES, BATCHES, PHASES = ("float32", "bfloat16"), (1, 8), ("prefill", "decode")
BEFORE, AFTER = "as it comes", "swapped"
FEW = (1, 64)
ENOUGH = 0.02  # seconds that a call is repeated for
SETTLE = 0.05  # seconds until threads that wait for more work by spinning have given up

Timed = Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--report", type=Path, help="bring the page up to date from this file")
    parser.add_argument("--rounds", type=int, default=15, help="times that each is timed")
    options = parser.parse_args()
    if options.report is None:
        content = measure(options.rounds)
        print("\n\n".join(blocks(content).values()))
        if options.json is not None:
            options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return
    from comparison.report import update

    update(PAGE, blocks(json.loads(options.report.read_text(encoding="utf-8"))))


def measure(rounds: int) -> dict[str, Any]:
    """Return every figure, in seconds."""
    import torch
    import transformers

    from threads import facts

    with torch.inference_mode():
        figures = {
            "models": [each for dtype in DTYPES for each in models(dtype, rounds)],
            "calls": list(calls(rounds)),
        }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return facts() | versions | {"threads": torch.get_num_threads(), "rounds": rounds} | figures


def models(dtype: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Time a whole model, and the kinds of its modules, at each batch size and phase."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=INTERMEDIATE,
        vocab_size=VOCABULARY,
    )
    model = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    for batch in BATCHES:
        prompt = torch.randint(VOCABULARY, (batch, PROMPT))
        for phase in PHASES:
            once = PHASE[phase](model, prompt)
            tokens = batch * (PROMPT if phase == "prefill" else WRITTEN)
            rows = PROMPT if phase == "prefill" else 1
            yield {
                "dtype": dtype,
                "batch": batch,
                "phase": phase,
                "tokens": tokens,
                "seconds": in_turn(model, once, rounds),
                "modules": list(modules(model, (batch, rows, HIDDEN), rounds)),
            }


def prefill(model: Any, prompt: Any) -> Timed:
    def once() -> float:
        start = time.perf_counter()
        model(prompt, use_cache=True)
        return time.perf_counter() - start

    return once


def decode(model: Any, prompt: Any) -> Timed:
    read = model(prompt, use_cache=True)
    first, cache = read.logits[:, -1:].argmax(-1), read.past_key_values

    def once() -> float:
        written = cache.get_seq_length() - PROMPT
        if written:
            cache.crop(-written)
        token = first
        start = time.perf_counter()
        for _ in range(WRITTEN):
            step = model(token, past_key_values=cache, use_cache=True)
            token = step.logits[:, -1:].argmax(-1)
        return time.perf_counter() - start

    return once


PHASE: dict[str, Callable[[Any, Any], Timed]] = {"prefill": prefill, "decode": decode}


def in_turn(model: Any, once: Timed, rounds: int) -> dict[str, list[float]]:
    """Time with and without the swap, either one first in half of the rounds."""
    from tensor_ops_torch.modules import restore_model, swap_modules

    seconds: dict[str, list[float]] = {BEFORE: [], AFTER: []}
    for number in range(-1, rounds):  # the first is to warm up
        for which in (BEFORE, AFTER) if number % 2 else (AFTER, BEFORE):
            (swap_modules if which == AFTER else restore_model)(model)
            time.sleep(SETTLE)
            taken = once()
            if number >= 0:
                seconds[which].append(taken)
    restore_model(model)
    return seconds


def modules(model: Any, shape: tuple[int, ...], rounds: int) -> Iterator[dict[str, Any]]:
    """Time one module of each kind that is swapped, hot."""
    import torch

    from tensor_ops_torch.modules import restore_model, swap_modules

    kinds: dict[str, list[str]] = {}
    for entry in swap_modules(model).swapped:
        kinds.setdefault(entry.class_name, []).append(entry.name)
    restore_model(model)
    for kind, names in kinds.items():
        module = model.get_submodule(names[0])
        x = torch.randn(shape, dtype=next(model.parameters()).dtype)
        if kind.startswith(("SiLU", "GELU")):
            continue  # inside an MLP that is swapped as a whole

        def once(module: Any = module, x: Any = x) -> float:
            return _per_call(lambda: module(x))

        yield {"kind": kind, "count": len(names), "seconds": in_turn(module, once, rounds)}


def calls(rounds: int) -> Iterator[dict[str, Any]]:
    """Time calls on few elements: the operator, and PyTorch's function where there is one."""
    import torch
    from torch.nn import functional

    import tensor_ops_torch as ours

    x, weight, half = torch.randn(FEW), torch.randn(FEW[-1]), torch.randn(FEW[-1] // 2)
    n = FEW[-1:]
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "rms_norm": (
            lambda: ours.rms_norm(x, weight),
            lambda: functional.rms_norm(x, n, weight, 1e-6),
        ),
        "add_rms_norm": (lambda: ours.add_rms_norm(x, x, weight), None),
        "layer_norm": (
            lambda: ours.layer_norm(x, weight, weight),
            lambda: functional.layer_norm(x, n, weight, weight),
        ),
        "silu": (lambda: ours.silu(x), lambda: functional.silu(x)),
        "gelu": (lambda: ours.gelu(x), lambda: functional.gelu(x, approximate="tanh")),
        "silu_mul": (lambda: ours.silu_mul(x, x), lambda: functional.silu(x) * x),
        "gelu_mul": (
            lambda: ours.gelu_mul(x, x),
            lambda: functional.gelu(x, approximate="tanh") * x,
        ),
        "softmax": (lambda: ours.softmax(x), lambda: functional.softmax(x, -1)),
        "rope": (lambda: ours.rope(x, half, half), None),
    }
    for name, functions in pairs.items():
        seconds: list[list[float]] = [[], []]
        for _ in range(rounds):
            for times, function in zip(seconds, functions, strict=True):
                if function is not None:
                    times.append(_per_call(function))
        yield {"op": name, "operator": seconds[0], "pytorch": seconds[1]}


def _per_call(function: Callable[[], Any]) -> float:
    """Return the seconds of a call, hot."""
    function()
    start = time.perf_counter()
    function()
    repeats = max(1, int(ENOUGH / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def blocks(content: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    return {
        "setting": (
            f"PyTorch {content['torch']}, transformers {content['transformers']}, "
            f"tensor-ops-cpp {content['tensor_ops_cpp']} on {content['device']}, "
            f"{content['threads']} threads, {content['rounds']} rounds."
        ),
        "tokens": _table(
            ("dtype", "batch", "phase", "tokens/s as it comes", "tokens/s swapped", "ratio"),
            (
                (
                    each["dtype"],
                    each["batch"],
                    each["phase"],
                    f"{each['tokens'] / statistics.median(each['seconds'][BEFORE]):.1f}",
                    f"{each['tokens'] / statistics.median(each['seconds'][AFTER]):.1f}",
                    _ratio(each["seconds"]),
                )
                for each in content["models"]
            ),
        ),
        "modules": _table(
            ("module", "dtype", "batch", "phase", "as it comes", "swapped", "ratio"),
            (
                (
                    f"{module['count']} {module['kind']}",
                    each["dtype"],
                    each["batch"],
                    each["phase"],
                    _microseconds(module["seconds"][BEFORE]),
                    _microseconds(module["seconds"][AFTER]),
                    _ratio(module["seconds"]),
                )
                for each in content["models"]
                for module in each["modules"]
            ),
        ),
        "calls": _table(
            ("op", "operator", "PyTorch's function"),
            (
                (
                    f"`{each['op']}`",
                    _microseconds(each["operator"]),
                    _microseconds(each["pytorch"]) if each["pytorch"] else "none",
                )
                for each in content["calls"]
            ),
        ),
    }


def _ratio(seconds: dict[str, list[float]]) -> str:
    """Return how many times as fast the swap makes it: the median of the rounds, and quartiles."""
    ratios = [a / b for a, b in zip(seconds[BEFORE], seconds[AFTER], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _microseconds(seconds: Iterable[float]) -> str:
    return f"{1e6 * statistics.median(seconds):.1f} µs"


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    main()
