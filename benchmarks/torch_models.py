"""Speedup of a Llama of transformers by the swapped modules, and cost of a call, on the CPU.

A random-weight Llama is timed as it comes and with its modules swapped, step by step in turn:
reading a prompt (prefill) and writing a token (decode). So is each kind of swapped module alone, at
the same shapes. Both are timed in several processes, because where the memory of a process lies
changes either side's time by one or two percent for as long as the process lives. Then layers of
PyTorch by their number of rows, and each operator on few elements beside PyTorch's own functions.

    nox -s bench_torch -- torch_models --json benchmarks/results/torch_models.json
    nox -s bench_torch -- torch_page
"""

import argparse
import ctypes
import functools
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harness import command, tables

HIDDEN, LAYERS, HEADS, INTERMEDIATE, VOCABULARY = 1024, 8, 16, 2816, 32000
PROMPT = 128
DTYPES, BATCHES, PHASES = ("float32", "bfloat16"), (1, 8), ("prefill", "decode")
BEFORE, AFTER = "as it comes", "swapped"
FEW = (1, 64)
WIDTH, ROWS = 768, (1, 16, 256, 4096)  # of layers that are one function of PyTorch
MODULE_ROUNDS = 5  # times that a module is timed in each process
ENOUGH = 0.02  # seconds that a call is repeated for
# A step of prefill takes longer than one of decode, and all of the larger batch do.
FEWER = {("decode", 1): 1, ("decode", 8): 2, ("prefill", 1): 4, ("prefill", 8): 10}

Timed = Callable[[str], float]
table = functools.partial(tables.table, rule=" --- ")


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--processes", type=int, default=11, help="in which models are timed")
    parser.add_argument("--pairs", type=int, default=48, help="steps of either side in each")
    parser.add_argument("--rounds", type=int, default=15, help="times that a layer is timed")
    parser.add_argument("--one-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_process:
        json.dump(time_models(options.pairs), sys.stdout)
        return
    content = measure(options.processes, options.pairs, options.rounds)
    command.show(content, blocks, options.json)


def measure(processes: int, pairs: int, rounds: int) -> dict[str, Any]:
    """Return every figure, in seconds."""
    import torch
    import transformers

    from threads import facts

    words = (__file__, "--one-process", "--pairs", str(pairs))
    found = [command.figures_of(*words) for _ in range(processes)]
    figures: dict[str, Any] = {"models": combined(found)}
    keep_memory()
    with torch.inference_mode():
        figures["layers"] = list(layers(rounds))
        figures["calls"] = list(calls(rounds))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return facts() | versions | {"threads": torch.get_num_threads()} | figures


def keep_memory() -> None:
    """Let glibc keep what is freed.

    It gives memory back to the system and asks for it again when it happens to, and the faults of
    the new pages cost a step of either side more than a swap gains.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # of malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_threshold, 2**25)


def time_models(pairs: int) -> list[dict[str, Any]]:
    import torch

    keep_memory()
    with torch.inference_mode():
        return [each for dtype in DTYPES for each in models(dtype, pairs)]


def combined(processes: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one entry for each of a process, with a list of the figures of all processes."""

    def collect(same: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        kept = {key: value for key, value in same[0].items() if key != "process"}
        return kept | {"processes": [each["process"] for each in same]}

    return [
        collect(same)
        | {"modules": list(map(collect, zip(*(e["modules"] for e in same), strict=True)))}
        for same in zip(*processes, strict=True)
    ]


def models(dtype: str, pairs: int) -> Iterator[dict[str, Any]]:
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
    switch = Switch(model)
    for batch in BATCHES:
        prompt = torch.randint(VOCABULARY, (batch, PROMPT))
        for phase in PHASES:
            rows = PROMPT if phase == "prefill" else 1
            count = max(4, pairs // FEWER[phase, batch])
            seconds = in_turn(switch, PHASE[phase](model, prompt), count)
            alone = modules(model, switch, (batch, rows, HIDDEN))
            yield {
                "dtype": dtype,
                "batch": batch,
                "phase": phase,
                "tokens": batch * rows,
                "process": medians(seconds),
                "modules": list(alone),
            }


def prefill(model: Any, prompt: Any) -> Timed:
    def once(_: str) -> float:
        start = time.perf_counter()
        model(prompt, use_cache=True)
        return time.perf_counter() - start

    return once


def decode(model: Any, prompt: Any) -> Timed:
    read = model(prompt, use_cache=True)
    token, cache = read.logits[:, -1:].argmax(-1), read.past_key_values

    def once(_: str) -> float:
        start = time.perf_counter()
        model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        taken = time.perf_counter() - start
        cache.crop(-1)
        return taken

    return once


PHASE: dict[str, Callable[[Any, Any], Timed]] = {"prefill": prefill, "decode": decode}


class Switch:
    """The swap of a model, on and off in less time than a step takes."""

    def __init__(self, model: Any) -> None:
        from tensor_ops_torch.modules import restore_model, swap_modules

        modules = [model.get_submodule(each.name) for each in swap_modules(model).swapped]
        swapped = [type(each) for each in modules]
        restore_model(model)
        self._classes = {BEFORE: [type(each) for each in modules], AFTER: swapped}
        self._modules = modules

    def to(self, which: str) -> None:
        for module, kind in zip(self._modules, self._classes[which], strict=True):
            module.__class__ = kind


def in_turn(
    switch: Switch,
    timed: Callable[[str], float],
    rounds: int,
    sides: tuple[str, ...] = (BEFORE, AFTER),
) -> dict[str, list[float]]:
    """Time each side, in random order."""
    seconds: dict[str, list[float]] = {which: [] for which in sides}
    order = list(sides)
    for number in range(-2, rounds):  # the first are to warm up
        random.shuffle(order)
        for which in order:
            switch.to(AFTER if which == AFTER else BEFORE)
            taken = timed(which)
            if number >= 0:
                seconds[which].append(float(f"{taken:.6g}"))
    switch.to(BEFORE)
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return what one process measured: median seconds, and the median of the turns' ratios."""
    middle = {which: statistics.median(times) for which, times in seconds.items()}
    ratio = statistics.median(a / b for a, b in zip(seconds[BEFORE], seconds[AFTER], strict=True))
    return {key: float(f"{value:.5g}") for key, value in {**middle, "ratio": ratio}.items()}


def modules(model: Any, switch: Switch, shape: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Time one module of each kind that is swapped, hot."""
    import torch

    from tensor_ops_torch.modules import swap_report

    kinds: dict[str, list[str]] = {}
    for entry in swap_report(model).entries:
        if entry.reason is None:
            kinds.setdefault(entry.class_name, []).append(entry.name)
    for kind, names in kinds.items():
        module = model.get_submodule(names[0])
        x = torch.randn(shape, dtype=next(model.parameters()).dtype)
        if kind.startswith(("SiLU", "GELU")):
            continue  # inside an MLP that is swapped as a whole

        def once(_: str, module: Any = module, x: Any = x) -> float:
            return per_call(lambda: module(x))

        process = medians(in_turn(switch, once, MODULE_ROUNDS))
        yield {"kind": kind, "count": len(names), "process": process}


def layers(rounds: int) -> Iterator[dict[str, Any]]:
    """Time layers that are one function of PyTorch, by the number of rows, hot."""
    import torch
    from torch import nn

    kinds = (nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH), nn.SiLU(), nn.GELU(), nn.GELU("tanh"))
    for layer in (*kinds, nn.Softmax(-1)):
        model = nn.Sequential(layer)
        switch = Switch(model)
        for rows in ROWS:
            x = torch.randn(rows, WIDTH)

            def once(_: str, module: Any = layer, x: Any = x) -> float:
                return per_call(lambda: module(x))

            yield {"layer": repr(layer), "rows": rows, "seconds": in_turn(switch, once, rounds)}


def calls(rounds: int) -> Iterator[dict[str, Any]]:
    """Time calls on few elements: the operator, and the same by PyTorch's own functions."""
    import tensor_ops_torch
    from comparison.cases import ALLOCATED, Case, arguments
    from peers.torch import PLAIN, as_tensor
    from tensor_ops.ops import OPS
    from tensor_ops.variants import named

    for name in OPS:
        (variant, *_) = named(name)
        case = Case(variant.name, "float32", FEW, 1, ALLOCATED)
        given = [as_tensor(value) for value in arguments(case).values()]
        functions = getattr(tensor_ops_torch, name), PLAIN.get(variant.name)
        seconds: list[list[float]] = [[], []]
        for _ in range(rounds):
            for times, function in zip(seconds, functions, strict=True):
                if function is not None:
                    times.append(per_call(functools.partial(function, *given)))
        yield {"op": name, "operator": seconds[0], "pytorch": seconds[1]}


def per_call(function: Callable[[], Any]) -> float:
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
            f"{content['threads']} threads."
        ),
        "tokens": table(
            ("dtype", "batch", "phase", "tokens/s as it comes", "tokens/s swapped", "ratio"),
            (
                (
                    each["dtype"],
                    each["batch"],
                    each["phase"],
                    f"{each['tokens'] / _median(each, BEFORE):.1f}",
                    f"{each['tokens'] / _median(each, AFTER):.1f}",
                    _ratio(each),
                )
                for each in content["models"]
            ),
        ),
        "modules": table(
            ("module", "dtype", "batch", "phase", "as it comes", "swapped", "ratio"),
            (
                (
                    f"{module['count']} {module['kind']}",
                    each["dtype"],
                    each["batch"],
                    each["phase"],
                    _microseconds([_median(module, BEFORE)]),
                    _microseconds([_median(module, AFTER)]),
                    _ratio(module),
                )
                for each in content["models"]
                for module in each["modules"]
            ),
        ),
        "layers": table(
            ("layer", *(f"{rows} row{'s' * (rows > 1)}" for rows in ROWS)),
            (
                (f"`{layer}`", *(_times(cells[layer, rows]) for rows in ROWS))
                for cells in [{(e["layer"], e["rows"]): e["seconds"] for e in content["layers"]}]
                for layer in dict.fromkeys(each["layer"] for each in content["layers"])
            ),
        ),
        "calls": table(
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


def _median(entry: dict[str, Any], key: str) -> float:
    return statistics.median(each[key] for each in entry["processes"])


def _ratio(entry: dict[str, Any]) -> str:
    """Return how many times as fast the swap makes it: the median of the processes, and its bounds.

    The bounds are the two of the sorted ratios between which the median lies with a probability of
    at least 0.95, whatever their distribution.
    """
    ratios = sorted(each["ratio"] for each in entry["processes"])
    count = len(ratios)
    outside = [sum(math.comb(count, below) for below in range(k + 1)) for k in range(count // 2)]
    # With the k-th of either end, the median lies outside in 2 * outside[k] of 2**count cases.
    k = max((k for k, cases in enumerate(outside) if 2 * cases <= 0.05 * 2**count), default=0)
    return f"{statistics.median(ratios):.3f} ({ratios[k]:.3f} to {ratios[-1 - k]:.3f})"


def _times(seconds: dict[str, list[float]]) -> str:
    before, after = _microseconds(seconds[BEFORE]), _microseconds(seconds[AFTER])
    return f"{before} → {after}"


def _microseconds(seconds: Iterable[float]) -> str:
    return f"{1e6 * statistics.median(seconds):.1f} µs"


if __name__ == "__main__":
    main()
