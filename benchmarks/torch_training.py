"""Gain of swapped modules in training on the CPU: layers, whole steps and memory.

Forward and backward of each kind of layer are timed as it comes, swapped and compiled by
torch.compile, in random order; then whole steps of a GPT-2 and of a Llama with random weights. With
each number of threads a process of its own does so. The memory that a layer keeps for its backward
is counted.

    nox -s bench_torch -- torch_training --json benchmarks/results/torch_training.json
    nox -s bench_torch -- torch_page
"""

import argparse
import copy
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness import command
from torch_models import AFTER, BEFORE, Switch, in_turn, keep_memory, per_call, table

COMPILED = "compiled"
SIDES = (BEFORE, AFTER, COMPILED)
THREADS = (1, 2)
SIZES = ((1, 768), (16, 768), (256, 768), (4096, 768), (256, 4096))
# From so many rows on the goals hold.
LARGE = 256
TOKENS = (2, 128)
WIDTH, LAYERS, HEADS, VOCABULARY = 512, 4, 8, 8192
LIGER = (
    "The kernels of Liger are Triton's, of which no release compiles for CPUs: they are not here."
)


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="times that each side is timed")
    parser.add_argument("--steps", type=int, default=12, help="training steps of each side")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        json.dump(time_all(options.threads, options.rounds, options.steps), sys.stdout)
        return
    content = measure(options.rounds, options.steps)
    command.show(content, blocks, options.json)


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Return every figure, in seconds and bytes."""
    import torch
    import transformers

    from threads import facts

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    by_threads = []
    for threads in THREADS:
        given = ("--threads", str(threads), "--rounds", str(rounds), "--steps", str(steps))
        by_threads.append({"threads": threads, **command.figures_of(__file__, *given)})
    return facts() | versions | {"by_threads": by_threads}


def time_all(threads: int, rounds: int, steps: int) -> dict[str, Any]:
    import torch

    import tensor_ops_cpp

    torch.set_num_threads(threads)
    tensor_ops_cpp.set_num_threads(threads)
    torch._dynamo.config.cache_size_limit = 64  # a compiled layer for each size
    keep_memory()
    return {"layers": list(layers(rounds)), "models": list(models(steps))}


def layers(rounds: int) -> Iterator[dict[str, Any]]:
    """Time forward and backward of layers that are one function of PyTorch, hot."""
    import torch
    from torch import nn

    for rows, width in SIZES:
        kinds = (nn.LayerNorm(width), nn.RMSNorm(width), nn.SiLU(), nn.GELU(), nn.GELU("tanh"))
        for layer in (*kinds, nn.Softmax(-1)):
            compiled = torch.compile(copy.deepcopy(layer), dynamic=False)
            switch = Switch(nn.Sequential(layer))
            x = torch.randn(rows, width, requires_grad=True)
            grad = torch.randn(rows, width)

            def step(module: Any, x: Any = x, grad: Any = grad) -> None:
                torch.autograd.grad(module(x), (x, *module.parameters()), grad)

            def timed(which: str, layer: Any = layer, compiled: Any = compiled) -> float:
                module = compiled if which == COMPILED else layer
                return per_call(lambda: step(module))

            kept = {}
            for which in (BEFORE, AFTER):
                switch.to(which)
                kept[which] = kept_bytes(lambda: layer(x), (x, *layer.parameters()))  # noqa: B023
            yield {
                "layer": repr(layer).replace(f"({width},)", "n").replace("(n, ", "("),
                "rows": rows,
                "width": width,
                "kept": kept,
                "seconds": in_turn(switch, timed, rounds, SIDES),
            }


def kept_bytes(forward: Callable[[], Any], given: tuple[Any, ...]) -> int:
    """Return how many bytes a forward keeps for the backward, besides what it was given."""
    import torch

    others = {each.untyped_storage().data_ptr() for each in given}
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in others:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    del result
    return sum(kept.values())


def models(steps: int) -> Iterator[dict[str, Any]]:
    """Time training steps of models with random weights."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    gpt2 = GPT2Config(
        n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, vocab_size=VOCABULARY,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    llama = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=1376, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, vocab_size=VOCABULARY,
    )  # fmt: skip
    for name, kind, config in (
        ("GPT-2", GPT2LMHeadModel, gpt2),
        ("Llama", LlamaForCausalLM, llama),
    ):
        for dtype in ("float32", "bfloat16"):
            torch.manual_seed(0)
            model = kind(config).to(getattr(torch, dtype)).train()
            compiled = torch.compile(copy.deepcopy(model), dynamic=False)
            ids = torch.randint(VOCABULARY, TOKENS)

            def timed(
                which: str, model: Any = model, compiled: Any = compiled, ids: Any = ids
            ) -> float:
                return training_step(compiled if which == COMPILED else model, ids)

            seconds = in_turn(Switch(model), timed, steps, SIDES)
            yield {"model": name, "dtype": dtype, "seconds": seconds}


def training_step(model: Any, ids: Any) -> float:
    import torch

    start = time.perf_counter()
    model(ids, labels=ids, use_cache=False).loss.backward()
    with torch.no_grad():
        for each in model.parameters():
            each.sub_(1e-3 * each.grad)
            each.grad = None
    return time.perf_counter() - start


def blocks(content: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    by_threads = content["by_threads"]
    return {
        "training setting": (
            f"PyTorch {content['torch']}, transformers {content['transformers']}, "
            f"tensor-ops-cpp {content['tensor_ops_cpp']} on {content['device']}. {LIGER}"
        ),
        "training layers": table(
            ("layer", "shape", *map(_threads, by_threads)),
            (
                (f"`{one['layer']}`", f"{one['rows']}x{one['width']}", *map(_cell, same))
                for same in zip(*(of["layers"] for of in by_threads), strict=True)
                for one in same[:1]
            ),
        ),
        "training steps": table(
            ("model", "dtype", "threads", "as it comes", "swapped", "compiled", "ratio"),
            (
                (
                    each["model"], each["dtype"], of["threads"],
                    *(f"{1e3 * _median(each, side):.1f} ms" for side in (BEFORE, AFTER, COMPILED)),
                    f"{ratio(each):.3f}",
                )
                for of in by_threads
                for each in of["models"]
            ),
        ),
        "training memory": table(
            ("layer", "as it comes", "swapped"),
            (
                (f"`{each['layer']}`", *(_per_row(each, side) for side in (BEFORE, AFTER)))
                for each in by_threads[0]["layers"]
                if (each["rows"], each["width"]) == (LARGE, 768)
            ),
        ),
        "training goals": "\n".join(goals(content)),
    }  # fmt: skip


def goals(content: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each goal: whether it is met, and what misses it."""
    for of in content["by_threads"]:
        large = [each for each in of["layers"] if each["rows"] >= LARGE]
        mean = math.exp(statistics.fmean(math.log(ratio(each)) for each in large))
        slower = [
            f"`{each['layer']}` at {each['rows']}x{each['width']} ({ratio(each):.2f})"
            for each in large
            if ratio(each) < 0.95
        ]
        threads = _threads(of)
        yield f"- Layers with {threads}: geometric mean of the ratios {mean:.2f} (goal: 1.3)."
        missed = f"missed by {', '.join(slower)}" if slower else "met"
        yield f"- No layer more than 5% slower, with {threads}: {missed}."
        steps = [
            f"{each['model']} in {each['dtype']} ({ratio(each):.2f})"
            for each in of["models"]
            if ratio(each) < 1
        ]
        yield f"- No training step slower, with {threads}: " + (
            f"missed by {', '.join(steps)}." if steps else "met."
        )
    more = [
        f"`{each['layer']}`"
        for each in content["by_threads"][0]["layers"]
        if each["kept"][AFTER] > each["kept"][BEFORE]
    ]
    kept = f"missed by {', '.join(dict.fromkeys(more))}" if more else "met"
    yield f"- No more memory kept for the backward: {kept}."


def ratio(each: dict[str, Any]) -> float:
    """Return how many times as fast the swap makes it: the median of the rounds."""
    seconds = each["seconds"]
    return statistics.median(a / b for a, b in zip(seconds[BEFORE], seconds[AFTER], strict=True))


def _threads(of: dict[str, Any]) -> str:
    return f"{of['threads']} thread{'s' * (of['threads'] > 1)}"


def _cell(each: dict[str, Any]) -> str:
    times = (f"{1e6 * _median(each, side):.0f}" for side in (BEFORE, AFTER, COMPILED))
    return f"{' → '.join(list(times)[:2])} µs ({ratio(each):.2f}), " + (
        f"compiled {1e6 * _median(each, COMPILED):.0f} µs"
    )


def _median(each: dict[str, Any], side: str) -> float:
    return statistics.median(each["seconds"][side])


def _per_row(each: dict[str, Any], side: str) -> str:
    return f"{each['kept'][side] / each['rows']:.0f} bytes a row"


if __name__ == "__main__":
    main()
