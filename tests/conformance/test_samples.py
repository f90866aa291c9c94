"""Every op, backend, dtype and sample: the result is right to the op's stated bound."""

import itertools

import numpy as np
import pytest

from calls import (
    LAYOUTS,
    as_tuple,
    case,
    check,
    choices,
    draw_arguments,
    is_unary,
    shapes_for,
    sprinkle,
)
from tensor_ops.op.samples import Draw

pytestmark = pytest.mark.usefixtures("supported")


def run(op, backend, values):
    before = {name: value.tobytes() for name, value in values.items() if hasattr(value, "tobytes")}
    result = op.public(**values, backend=backend)
    for name, data in before.items():
        assert values[name].tobytes() == data, f"{name} was changed"
    return result


def test_op_samples(op, backend, dtype):
    for sample in op.samples:
        if dtype not in sample.dtypes or backend in sample.not_for:
            continue
        with case(f"sample {sample.name!r}"):
            values = sample.values(op, dtype)
            check(op, backend, values, run(op, backend, values))


@pytest.mark.sampled(2, "op", "dtype")
def test_shapes(op, backend, dtype):
    for shape in shapes_for(op):
        for kwargs in choices(op):
            with case(f"shape {shape} {kwargs}"):
                values = draw_arguments(op, shape, dtype, f"shape {shape}") | kwargs
                check(op, backend, values, run(op, backend, values))


def test_layouts(op, backend, dtype):
    for layout, laid_out in LAYOUTS.items():
        for shape in ((3, 4, 70), (2, 5, 128)):
            with case(f"layout {layout} {shape}"):
                plain = draw_arguments(op, shape, dtype, f"layout {layout}")
                values = {name: laid_out(value) for name, value in plain.items()}
                check(op, backend, values, run(op, backend, values))


def test_layouts_differ_between_arguments(op, backend, dtype):
    names = list(LAYOUTS)
    plain = draw_arguments(op, (3, 4, 70), dtype, "mixed layouts")
    for shift in range(len(names)):
        chosen = names[shift:] + names[:shift]
        values = {
            name: LAYOUTS[layout](value)
            for (name, value), layout in zip(plain.items(), chosen, strict=False)
        }
        check(op, backend, values, run(op, backend, values))


def test_zero_strides(op, backend, dtype):
    plain = draw_arguments(op, (1, 1, 66), dtype, "zero strides")
    values = {
        name: np.broadcast_to(value, (3, 5, 66)) if op.kinds[name].is_full else value
        for name, value in plain.items()
    }
    check(op, backend, values, run(op, backend, values))


@pytest.mark.ops(having=lambda op: any(kind.role == "elements" for kind in op.kinds.values()))
def test_zero_dimensions(op, backend, dtype):
    values = draw_arguments(op, (), dtype, "zero dimensions")
    result = run(op, backend, values)
    assert all(each.shape == () for each in as_tuple(result))
    check(op, backend, values, result)


def test_special_values(op, backend, dtype):
    for kwargs in choices(op):
        for share, shape in itertools.product((0.01, 0.3), ((40, 34), (9, 200))):
            name = f"special values {share} {shape}"
            with case(f"{name} {kwargs}"):
                values = sprinkle(op, draw_arguments(op, shape, dtype, name), name, share) | kwargs
                check(op, backend, values, run(op, backend, values))


def test_magnitudes(op, backend, dtype):
    for scale in (1e-30, 1e-8, 1e4, 1e15):
        with case(f"magnitude {scale}"):
            values = draw_arguments(op, (6, 258), dtype, f"magnitude {scale}")
            x = values[op.first].astype(np.float64) * scale
            with np.errstate(over="ignore", under="ignore"):
                values[op.first] = x.astype(values[op.first].dtype)
            check(op, backend, values, run(op, backend, values))


@pytest.mark.ops(having=is_unary)
def test_every_half(op, backend):
    """All 65,536 inputs of the half types."""
    for dtype in ("float16", "bfloat16"):
        x = np.arange(1 << 16, dtype=np.uint16).view(Draw(dtype, "").dtype)
        for kwargs in choices(op):
            values = {op.first: x} | kwargs
            check(op, backend, values, run(op, backend, values))


@pytest.mark.ops(having=is_unary)
def test_float32_sweep(op, backend):
    """Bit patterns spread evenly over all of float32, both signs."""
    x = np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for kwargs in choices(op):
        values = {op.first: x} | kwargs
        check(op, backend, values, run(op, backend, values))
