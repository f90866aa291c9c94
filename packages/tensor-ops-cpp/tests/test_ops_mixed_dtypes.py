"""Float32 parameters and residuals beside a half x: right, and with the bits of one dtype."""

import numpy as np
import pytest
from cpp_cases import (
    DTYPES,
    LAYOUTS,
    OP_VARIANTS,
    OPS,
    arguments,
    array_names,
    as_out,
    as_tuple,
    is_sum,
    same_bits,
)

from tensor_ops.op import accuracy
from tensor_ops.ops import OPS as MEANINGS
from tensor_ops_cpp import _native

ALWAYS, NEVER, MEASURED = 1, 2**62, 0
HALVES = ("float16", "bfloat16")
CASES = [(op, kwargs, wide) for op, kwargs in OP_VARIANTS for wide in MEANINGS[op].mixtures]

pytestmark = [
    pytest.mark.parametrize("half", HALVES),
    pytest.mark.parametrize(("op", "kwargs", "wide"), CASES),
    pytest.mark.filterwarnings("ignore:(overflow|invalid)"),
]


@pytest.fixture(autouse=True)
def measured_threshold():
    yield
    _native.set_streaming_threshold(MEASURED)


def draw(op, shape, half, wide, rng):
    """Random arrays by name; float32 ones hold values that the half type lacks."""
    values = dict(zip(array_names(op), arguments(op, shape, np.float64, rng), strict=True))
    return {
        name: value.astype(np.float32 if name in wide else DTYPES[half])
        for name, value in values.items()
    }


def new_outs(op, values):
    return [np.empty_like(values[like]) for like in MEANINGS[op].results_like]


def check(op, kwargs, values, results):
    """Within the op's bounds for the dtype of each result."""
    meaning = MEANINGS[op]
    in_float64 = {name: value.astype(np.float64) for name, value in values.items()}
    references = as_tuple(meaning.numpy(**in_float64, **kwargs))
    terms = meaning.terms_of(in_float64 | kwargs)
    for like, result, reference, of_terms in zip(
        meaning.results_like, as_tuple(results), references, terms, strict=True
    ):
        assert result.dtype == values[like].dtype
        bound = meaning.bound(result.dtype.name, "cpp")
        measured = accuracy.measure(result, reference, bound, of_terms)
        assert measured.within, measured


@pytest.mark.parametrize("shape", [(1, 2), (5, 34), (3, 1002), (2, 4096), (2, 40_000)])
def test_errors_are_within_bounds(op, kwargs, wide, half, shape, rng):
    values = draw(op, shape, half, wide, rng)
    for threshold in (NEVER, ALWAYS):
        _native.set_streaming_threshold(threshold)
        check(op, kwargs, values, OPS[op](**values, **kwargs))


@pytest.mark.parametrize("shape", [(3, 2), (257, 132), (37, 300), (9, 4096), (3, 70_002)])
def test_bits_are_those_of_one_dtype(op, kwargs, wide, half, shape, rng):
    """Where the half type has all values; zeros of both signs among them."""
    same = draw(op, shape, half, (), rng)
    x = same[MEANINGS[op].first]
    x.flat[::7] = 0
    x.flat[::5] *= -1
    mixed = {n: v.astype(np.float32) if n in wide else v for n, v in same.items()}
    expected = as_tuple(OPS[op](**same, **kwargs, num_threads=1))
    first = None
    for threshold in (NEVER, ALWAYS):
        for threads in (1, 3):
            _native.set_streaming_threshold(threshold)
            found = as_tuple(OPS[op](**mixed, **kwargs, num_threads=threads))
            rounded = [a.astype(b.dtype) for a, b in zip(found, expected, strict=True)]
            assert same_bits(tuple(rounded), expected)
            first = found if first is None else first
            assert same_bits(found, first)


def test_one_row_among_threads(op, kwargs, wide, half, rng):
    for n in (16_384, 50_002):
        values = draw(op, (1, n), half, wide, rng)
        expected = OPS[op](**values, **kwargs, num_threads=1)
        for threads in (2, 3, 7):
            assert same_bits(OPS[op](**values, **kwargs, num_threads=threads), expected)


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 0])
def test_one_extraordinary_element(op, kwargs, wide, half, value, rng):
    """In an array of each dtype; the threads that share a row agree on what it needs."""
    first = MEANINGS[op].first
    for name in {first, *wide}:
        values = draw(op, (2, 20_000), half, wide, rng)
        values[name][..., 301] = value
        expected = OPS[op](**values, **kwargs, num_threads=1)
        assert same_bits(OPS[op](**values, **kwargs, num_threads=3), expected)
        if name != first or half == "bfloat16" or value != 3e38:
            finite = all(np.isfinite(v.astype(float)).all() for v in values.values())
            if finite and op != "layer_norm":  # where small elements have no digits left
                check(op, kwargs, values, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 6), (3, 5, 4, 8), (2, 130)])
def test_layouts(op, kwargs, wide, half, shape, layout, rng):
    plain = draw(op, shape, half, wide, rng)
    expected = OPS[op](**plain, **kwargs)
    laid_out = {name: LAYOUTS[layout](value) for name, value in plain.items()}
    for value in laid_out.values():
        value.flags.writeable = False
    for threads in (None, 3):
        assert same_bits(OPS[op](**laid_out, **kwargs, num_threads=threads), expected)
    outs = [LAYOUTS[layout](out) for out in new_outs(op, plain)]
    results = as_tuple(OPS[op](**plain, **kwargs, out=as_out(outs)))
    assert all(a is b for a, b in zip(results, outs, strict=True))
    assert same_bits(results, expected)


def test_zero_strides(op, kwargs, wide, half, rng):
    row = draw(op, (1, 8), half, wide, rng)
    repeated = {
        n: np.broadcast_to(v, (5, v.shape[-1])) if v.ndim > 1 else v for n, v in row.items()
    }
    whole = {name: value.copy() for name, value in repeated.items()}
    assert same_bits(OPS[op](**repeated, **kwargs), OPS[op](**whole, **kwargs))


@pytest.mark.parametrize("n", [66, 1000, 40_000])
def test_in_place(op, kwargs, wide, half, n, rng):
    values = draw(op, (3, n), half, wide, rng)
    expected = OPS[op](**values, **kwargs)
    for threads in (1, 4):
        for threshold in (NEVER, ALWAYS):
            _native.set_streaming_threshold(threshold)
            copies = {name: value.copy() for name, value in values.items()}
            outs = [
                new if is_sum(op, like) else copies[like]
                for new, like in zip(new_outs(op, values), MEANINGS[op].results_like, strict=True)
            ]
            OPS[op](**copies, **kwargs, out=as_out(outs), num_threads=threads)
            assert same_bits(tuple(outs), expected)


@pytest.mark.parametrize("shape", [(5, 1002), (11, 1056)])
@pytest.mark.parametrize("elements", [0, 1, 3, 16])
def test_results_at_any_address(op, kwargs, wide, half, elements, shape, rng):
    """Results whose lines begin at other elements are written another way."""
    values = draw(op, shape, half, wide, rng)
    expected = OPS[op](**values, **kwargs)
    _native.set_streaming_threshold(ALWAYS)
    outs = []
    for k, like in enumerate(new_outs(op, values)):
        memory = np.full(like.size + 128, 7, like.dtype)
        begin = -memory.ctypes.data % 64 // like.itemsize + elements * (k + 1)
        outs.append((memory, begin, memory[begin : begin + like.size].reshape(like.shape)))
    OPS[op](**values, **kwargs, out=as_out([out for _, _, out in outs]))
    assert same_bits(tuple(out for _, _, out in outs), expected)
    for memory, begin, out in outs:
        assert (memory[:begin] == 7).all()
        assert (memory[begin + out.size :] == 7).all()


def test_empty(op, kwargs, wide, half, rng):
    for shape in ((0, 4), (3, 0)):
        values = draw(op, shape, half, wide, rng)
        for like, y in zip(
            MEANINGS[op].results_like, as_tuple(OPS[op](**values, **kwargs)), strict=True
        ):
            assert (y.shape, y.dtype) == (values[like].shape, values[like].dtype)
