"""What one row takes on the way from a swapped layer down to the kernel, hot.

nox -s bench_torch -- torch_parts --json benchmarks/results/torch_parts.json
nox -s bench_torch -- torch_page
"""

import argparse
import copy
import functools
import json
import statistics
from pathlib import Path
from typing import Any

from torch_models import WIDTH, per_call, table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--rounds", type=int, default=15, help="times that each call is timed")
    options = parser.parse_args()
    content = measure(options.rounds)
    print(*blocks(content).values(), sep="\n")
    if options.json is not None:
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measure(rounds: int) -> dict[str, Any]:
    """Return the seconds of every call, in inference, by op."""
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
    return facts() | {"torch": torch.__version__, "ops": ops}


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


def blocks(content: dict[str, Any]) -> dict[str, str]:
    """Return the block of the page by its name."""
    ops = content["ops"]
    rows = (
        (name, *(f"{1e6 * statistics.median(ops[op][name]):.1f} µs" for op in ops))
        for name in next(iter(ops.values()))
    )
    return {"parts": table(("call", *(f"`{op}`" for op in ops)), rows)}


if __name__ == "__main__":
    main()
