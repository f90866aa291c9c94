"""Runs every kernel once at small sizes, for a checker of memory accesses to watch.

oclgrind --data-races --log FILE python tools/run_every_kernel.py
"""

import dataclasses
import itertools

import numpy as np

import tensor_ops_opencl
from tensor_ops.op.arguments import DTYPES
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.variants import named
from tensor_ops_opencl import contexts, discovery, iteration

# Lanes that share a row and rows that share a group need no more than this; then long rows.
SHAPES = ((3, 2), (5, 70), (2, 200))
LONGEST_WHOLE_ROW, PART = 150, 64


def main() -> None:
    """Run all ops, laid out as for a CPU and as for a GPU with small groups."""
    iteration.LONGEST_WHOLE_ROW, iteration.PART = LONGEST_WHOLE_ROW, PART
    iteration.CPU_PIECE, iteration.GPU_GROUP = 64, 16
    device = discovery.chosen()
    for kind in ("cpu", "gpu"):
        changed = dataclasses.replace(device, kind=kind, max_work_group_size=16)
        contexts.by_setting[""] = contexts.DeviceContext(changed)
        count = 0
        for name, dtype, shape in itertools.product(tensor_ops_opencl.ops, DTYPES, SHAPES):
            for variant in named(name):
                for given in _calls(variant, dtype, shape):
                    tensor_ops_opencl.ops[name](**given, **variant.options)
                    count += 1
        print(f"{kind}: {count} calls")


def _calls(variant, dtype, shape):
    """Yield the arguments of calls on ordinary and other values, of one dtype and of two."""
    op, draw = variant.op, Draw(dtype, f"{variant.name}/{shape}")
    values = arguments(op, shape, draw)
    yield values
    infinite = values[op.first].copy()
    infinite[0] = np.inf
    yield values | {op.first: infinite}
    if DTYPES[dtype].itemsize == 2:
        for wide in op.mixtures:
            yield arguments(op, shape, draw, wide)
    for name, kind in op.kinds.items():
        if kind.optional:
            yield values | {name: None}
        if kind.role == "half_rows":
            yield values | {name: values[name][:1]}
        if kind.role == "real" and kind.minimum < 0:
            yield values | {name: 0.5}
            yield values | {name: -0.5}
    if op.outputs == 1:
        yield values | {"out": values[op.first]}


if __name__ == "__main__":
    main()
