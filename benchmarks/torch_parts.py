"""Time of few rows on the way from a swapped layer down to the kernel, hot.

In inference each call on the way is timed. While gradients are recorded, a layer and the swapped
one take turns, some calls each, and what counts is the difference within a turn.

nox -s bench_torch -- torch_parts --json benchmarks/results/torch_parts.json
nox -s bench_torch -- torch_page
"""

import copy
import functools
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from harness import command
from torch_models import WIDTH, per_call, table

FEW_ROWS, THREADS = (1, 16), (1, 2)
CALLS = 20  # of each layer in a turn


def main() -> None:
    parser = command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="times that each call is timed")
    parser.add_argument("--turns", type=int, default=1500, help="turns with gradients")
    options = parser.parse_args()
    content = measure(options.rounds, options.turns)
    command.show(content, blocks, options.json)


def measure(rounds: int, turns: int) -> dict[str, Any]:
    """Return the seconds of every call by op, and the differences that a swap makes to training."""
    import torch
    from torch import nn
    from torch.nn import functional

    from threads import facts

    with torch.inference_mode():
        ops = {
            "silu": time_parts(nn.SiLU(), "silu", functional.silu, rounds),
            "softmax": time_parts(
                nn.Softmax(-1), "softmax", functools.partial(functional.softmax, dim=-1), rounds
            ),
        }
    return facts() | {
        "torch": torch.__version__,
        "ops": ops,
        "gradients": [
            {"threads": threads, "rows": rows, "layers": time_gradients(rows, threads, turns)}
            for threads in THREADS
            for rows in FEW_ROWS
        ],
    }


def time_parts(layer: Any, op: str, own: Any, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call for one row, from the layer down."""
    import torch

    import tensor_ops_cpp
    import tensor_ops_torch

    x = torch.randn(1, WIDTH)
    array, out = x.numpy(), torch.empty_like(x).numpy()
    swapped = torch.nn.Sequential(copy.deepcopy(layer))
    tensor_ops_torch.swap_modules(swapped)
    native = getattr(tensor_ops_cpp, op)
    timed = {
        "the layer as it comes": functools.partial(layer, x),
        "the layer swapped": functools.partial(swapped[0], x),
        "PyTorch's function": functools.partial(own, x),
        "`tensor_ops_torch`": functools.partial(getattr(tensor_ops_torch, op), x),
        "`tensor_ops_cpp`, of a tensor": functools.partial(native, x),
        "`tensor_ops_cpp`, of an array, with `out=`": functools.partial(native, array, out=out),
    }
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, function in timed.items():
            seconds[name].append(per_call(function))
    return seconds


def time_gradients(rows: int, threads: int, turns: int) -> dict[str, dict[str, Any]]:
    """Return the seconds of forward and backward of layers, as `summary` has them."""
    import torch
    from torch import nn

    import tensor_ops_cpp
    import tensor_ops_torch

    torch.set_num_threads(threads)
    tensor_ops_cpp.set_num_threads(threads)
    x, grad = torch.randn(rows, WIDTH, requires_grad=True), torch.randn(rows, WIDTH)
    found = {}
    for layer in (nn.LayerNorm(WIDTH), nn.SiLU(), nn.GELU("tanh"), nn.Softmax(-1)):
        swapped = torch.nn.Sequential(copy.deepcopy(layer))
        tensor_ops_torch.swap_modules(swapped)
        steps = [functools.partial(step, each, x, grad) for each in (layer, swapped[0])]
        in_turn(steps)
        found[repr(layer).partition("(")[0]] = summary([in_turn(steps) for _ in range(turns)])
    return found


def step(layer: Any, x: Any, grad: Any) -> None:
    import torch

    torch.autograd.grad(layer(x), (x, *layer.parameters()), grad)


def in_turn(steps: list[Callable[[], None]]) -> tuple[float, float]:
    """Return the seconds of one of `CALLS` calls of each step, which come in random order."""
    seconds = [0.0, 0.0]
    for which in random.sample((0, 1), 2):
        start = time.perf_counter()
        for _ in range(CALLS):
            steps[which]()
        seconds[which] = float(f"{(time.perf_counter() - start) / CALLS:.5g}")
    return seconds[0], seconds[1]


def summary(turns: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the medians of both layers, and the quartiles of what the swapped one took longer."""
    longer = statistics.quantiles((swapped - original for original, swapped in turns), n=4)
    original, swapped = (statistics.median(side) for side in zip(*turns, strict=True))
    return {
        "turns": len(turns),
        "original": original,
        "swapped": swapped,
        "longer": [float(f"{each:.4g}") for each in longer],
    }


def difference(of: dict[str, Any]) -> str:
    """Return in words what the swapped layer took longer, with its quartiles."""
    low, middle, high = (1e6 * each for each in of["longer"])
    return f"{middle:.1f} ({low:.1f} to {high:.1f}) µs"


def blocks(content: dict[str, Any]) -> dict[str, str]:
    """Return the block of the page by its name."""
    ops = content["ops"]
    rows = (
        (name, *(f"{1e6 * statistics.median(ops[op][name]):.1f} µs" for op in ops))
        for name in next(iter(ops.values()))
    )
    gradients = content["gradients"]
    layers = gradients[0]["layers"]
    heads = (
        ", ".join(f"{each[of]} {of if each[of] > 1 else of[:-1]}" for of in ("rows", "threads"))
        for each in gradients
    )
    return {
        "parts": table(("call", *(f"`{op}`" for op in ops)), rows),
        "gradients": table(
            ("layer", *heads),
            ((name, *(difference(each["layers"][name]) for each in gradients)) for name in layers),
        ),
    }


if __name__ == "__main__":
    main()
