"""Any strides give the bits that contiguous copies give, and out= may be an input."""

import itertools

import numpy as np
import pytest
from cpp_cases import (
    LAYOUTS,
    OP_VARIANTS,
    OPS,
    arguments,
    array_names,
    as_out,
    as_tuple,
    empty_outs,
    full_names,
    rowwise,
    same_bits,
    with_argument,
)

SHAPES = [(4, 6), (3, 5, 4, 8), (2, 130), (1, 2), (5, 1, 64)]


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_layouts(op, kwargs, dtype, rng):
    for shape, (name, laid_out) in itertools.product(SHAPES, LAYOUTS.items()):
        where = f"{shape} {name}"
        plain = arguments(op, shape, dtype, rng)
        expected = OPS[op](*plain, **kwargs)
        given = [laid_out(a) for a in plain]
        assert same_bits(OPS[op](*given, **kwargs), expected), where
        assert same_bits(OPS[op](*given, **kwargs, num_threads=3), expected), where
        outs = as_out([laid_out(each) for each in as_tuple(empty_outs(op, plain[0]))])
        result = OPS[op](*plain, **kwargs, out=outs)
        assert all(a is b for a, b in zip(as_tuple(result), as_tuple(outs), strict=True)), where
        assert same_bits(result, expected), where


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_zero_strides_of_inputs(op, kwargs, dtype, rng):
    row = arguments(op, (1, 8), dtype, rng)
    expected = OPS[op](*[np.repeat(a, 5, axis=0) if a.ndim == 2 else a for a in row], **kwargs)
    repeated = [np.broadcast_to(a, (5, a.shape[-1])) if a.ndim == 2 else a for a in row]
    assert same_bits(OPS[op](*repeated, **kwargs), expected)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_out_is_a_full_shape_input(op, kwargs, dtype, rng):
    plain = arguments(op, (5, 70), dtype, rng)
    expected = as_tuple(OPS[op](*plain, **kwargs))
    full = [k for k, name in enumerate(array_names(op)) if name in full_names(op)]
    rows = range(len(rowwise(op, expected)))  # which come before sums
    for lay_out in (np.ascontiguousarray, *LAYOUTS.values()):
        for k, which in itertools.product(full, rows):
            given = [lay_out(a.copy()) for a in plain]
            outs = [np.empty_like(a) for a in expected]
            outs[which] = given[k][...]
            result = OPS[op](*given, **kwargs, out=as_out(outs))
            assert same_bits(result, expected), (lay_out, k, which)


def test_add_rms_norm_writes_over_both_inputs(dtype, rng):
    x, residual, weight = arguments("add_rms_norm", (6, 100), dtype, rng)
    expected = OPS["add_rms_norm"](x, residual, weight)
    assert same_bits(OPS["add_rms_norm"](x, residual, weight, out=(residual, x)), expected)


def test_interleaved_disjoint_views_are_accepted(dtype, rng):
    both = rng.normal(size=(4, 16)).astype(dtype)
    x, out = both[:, ::2], both[:, 1::2]
    expected = OPS["softmax"](x.copy())
    assert same_bits(OPS["softmax"](x, out=out), expected)


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_empty(op, kwargs, dtype, rng):
    for shape in ((0,), (0, 4), (3, 0), (2, 0, 4), (0, 0)):
        x = arguments(op, shape, dtype, rng)
        expected = as_tuple(empty_outs(op, x[0]))
        for y, like in zip(as_tuple(OPS[op](*x, **kwargs)), expected, strict=True):
            assert (y.shape, y.dtype) == (like.shape, dtype)
            assert not y.any()  # the sums over no rows


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (7,), (2, 1, 3)])
@pytest.mark.parametrize("op", with_argument("elements"))
def test_elementwise_ranks(op, shape, dtype, rng):
    given = [rng.normal(size=shape).astype(dtype) for _ in array_names(op)]
    flat = as_tuple(OPS[op](*[a.reshape(-1) for a in given]))
    for y, expected in zip(as_tuple(OPS[op](*given)), flat, strict=True):
        assert y.shape == shape
        assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (4,), (1, 4), (5, 1, 4), (3, 1, 1, 1), (3, 5, 2, 4)])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_broadcasts(shape, interleaved, dtype, rng):
    x = rng.normal(size=(3, 5, 2, 8)).astype(dtype)
    cos, sin = rng.normal(size=(2, *shape)).astype(dtype)
    full = [np.ascontiguousarray(np.broadcast_to(a, (3, 5, 2, 4))) for a in (cos, sin)]
    expected = OPS["rope"](x, *full, interleaved=interleaved)
    given = [np.asarray(a, dtype) for a in (cos, sin)]
    assert same_bits(OPS["rope"](x, *given, interleaved=interleaved), expected)


@pytest.mark.parametrize(
    ("x_shape", "shape"),
    [
        (x_shape, shape)
        for x_shape in [(4, 8), (3, 4, 8), (1, 4, 8), (4, 4, 8)]
        for shape in [(), (1,), (4,), (4, 1), (1, 4), (4, 4), (1, 4, 4), (3, 1, 4), (3, 4, 1)]
        if len(shape) <= len(x_shape)
        and all(n in (1, m) for n, m in zip(shape[::-1], (4, *x_shape[-2::-1]), strict=False))
    ],
)
def test_rope_with_as_many_rows_as_pairs(x_shape, shape, rng):
    """The angles' shapes can be told apart only by their axes, not by their sizes."""
    x = rng.normal(size=x_shape)
    cos, sin = rng.normal(size=(2, *shape))
    cos, sin = np.asarray(cos), np.asarray(sin)
    half = (*x_shape[:-1], 4)
    whole = [np.ascontiguousarray(np.broadcast_to(a, half)) for a in (cos, sin)]
    pairs = x[..., :4] + 1j * x[..., 4:]
    turned = pairs * (whole[0] + 1j * whole[1])
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    assert np.allclose(OPS["rope"](x, cos, sin), expected, rtol=1e-12, atol=1e-12)
    assert same_bits(OPS["rope"](x, cos, sin), OPS["rope"](x, *whole))


@pytest.mark.parametrize("op", ["silu", "gelu"])
def test_overlapping_rows(op, dtype, rng):
    """A row may begin where what was gathered of the row before began, and be longer."""
    values = rng.normal(size=30000).astype(dtype)
    windows = np.lib.stride_tricks.sliding_window_view(values, 8400)[::8192, ::2]
    assert same_bits(OPS[op](windows, num_threads=1), OPS[op](windows.copy()))


@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_writes_only_its_output(op, kwargs, dtype, rng):
    plain = arguments(op, (5, 34), dtype, rng)
    expected = as_tuple(OPS[op](*plain, **kwargs))
    guarded = [np.full((7, 38), 123, dtype) for _ in expected]
    views = [
        guard[1:6, 2:36] if y.ndim > 1 else guard[1, 2:36]
        for guard, y in zip(guarded, expected, strict=True)
    ]
    OPS[op](*plain, **kwargs, out=as_out(views), num_threads=2)
    for guard, view, y in zip(guarded, views, expected, strict=True):
        assert view.tobytes() == y.tobytes()
        view[...] = dtype.type(123)
        assert (guard == dtype.type(123)).all()
