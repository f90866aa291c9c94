"""Runs every kernel once at small sizes, for a checker of memory accesses to watch.

oclgrind --data-races --log FILE python tools/run_every_kernel.py
"""

import dataclasses
import itertools

import ml_dtypes
import numpy as np

import tensor_ops_opencl
from tensor_ops_opencl import discovery, session, walks

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
# Lanes that share a row and rows that share a group need no more than this; then long rows.
SHAPES = ((3, 2), (5, 70), (2, 200))
LONGEST_WHOLE_ROW, PART = 150, 64


def main() -> None:
    """Run all ops, laid out as for a CPU and as for a GPU with small groups."""
    walks.LONGEST_WHOLE_ROW, walks.PART = LONGEST_WHOLE_ROW, PART
    walks.CPU_PIECE, walks.GPU_GROUP = 64, 16
    device = discovery.chosen()
    for kind in ("cpu", "gpu"):
        changed = dataclasses.replace(device, kind=kind, max_work_group_size=16)
        session._sessions[""] = session.Session(changed)
        count = 0
        for dtype, shape in itertools.product(DTYPES, SHAPES):
            for name, arguments in _calls(np.dtype(dtype), shape):
                tensor_ops_opencl.ops[name](**arguments)
                count += 1
        print(f"{kind}: {count} calls")


def _calls(dtype, shape):
    rows, n = shape
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.standard_normal(shape).astype(dtype)

    x, other, weight = draw(rows, n), draw(rows, n), draw(n)
    # The rows that need care too.
    large = x.copy()
    large[0] = np.inf
    for first in (x, large):
        yield "rms_norm", {"x": first, "weight": weight}
        yield "add_rms_norm", {"x": first, "residual": other, "weight": weight}
        yield "layer_norm", {"x": first, "weight": weight, "bias": None}
        yield "layer_norm", {"x": first, "weight": weight, "bias": draw(n)}
        yield "silu", {"x": first}
        yield "silu_mul", {"gate": first, "up": other}
        for approximate in ("tanh", "none"):
            yield "gelu", {"x": first, "approximate": approximate}
            yield "gelu_mul", {"gate": first, "up": other, "approximate": approximate}
        yield "softmax", {"x": first, "scale": 0.5}
        yield "softmax", {"x": first, "scale": -0.5}
        for interleaved in (False, True):
            angles = draw(1, n // 2), draw(rows, n // 2)
            yield "rope", {
                "x": first, "cos": angles[0], "sin": angles[1], "interleaved": interleaved
            }  # fmt: skip
    if x.dtype.itemsize == 2:
        wide, wide_weight = other.astype(np.float32), weight.astype(np.float32)
        yield "rms_norm", {"x": x, "weight": wide_weight}
        yield "add_rms_norm", {"x": x, "residual": wide, "weight": weight}
        yield "add_rms_norm", {"x": x, "residual": wide, "weight": wide_weight}
        yield "layer_norm", {"x": x, "weight": wide_weight, "bias": wide_weight}
        for interleaved in (False, True):
            angles = wide[:1, : n // 2], wide[:, : n // 2]
            yield "rope", {
                "x": x, "cos": angles[0], "sin": angles[1], "interleaved": interleaved
            }  # fmt: skip
    for name, arguments in (("silu", {"x": x}), ("softmax", {"x": x})):
        yield name, arguments | {"out": arguments["x"]}
    yield "rms_norm", {"x": x, "weight": weight, "out": x}
    yield "layer_norm", {"x": x, "weight": weight, "out": x}


if __name__ == "__main__":
    main()
