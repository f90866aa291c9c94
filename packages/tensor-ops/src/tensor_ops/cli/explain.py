"""``tensor-ops explain``: which backend runs a call, and why."""

import json
from argparse import ArgumentParser, Namespace

import numpy as np

from tensor_ops import explanation
from tensor_ops.cli import Commands, add_command, values
from tensor_ops.op.arguments import DTYPES

__all__ = ["add", "run"]


def add(commands: "Commands[ArgumentParser]") -> None:
    """Add this command's parser."""
    parser = add_command(
        commands,
        "explain",
        run,
        help="which backend runs a call, and why",
        description="Say which backend runs a call, and why. Exits with 1 when none can.",
        epilog="example: tensor-ops explain rms_norm --shape 128x4096 --dtype float16",
    )
    parser.add_argument("op", metavar="OP", type=values.op)
    parser.add_argument("--shape", type=values.shape, default=(128, 4096), help="default: 128x4096")
    parser.add_argument("--dtype", type=values.dtype, default="float32", help="default: float32")
    parser.add_argument(
        "--backend", metavar="NAME", type=values.backend_or_auto, help="as on the call"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: Namespace) -> int:
    """Print the explanation."""
    # The selection looks at an array without reading it: one element stands for all of them.
    x = np.broadcast_to(np.zeros((), DTYPES[arguments.dtype]), arguments.shape)
    op, _, _ = arguments.op.partition(":")  # the variants of an op run on the same backend
    found = explanation.explain(op, x, backend=arguments.backend)
    if arguments.json:
        print(json.dumps(found.as_dict() | {"shape": arguments.shape}, indent=2))
    else:
        print(found)
    return 0 if found.backend else 1
