"""Promises of the NumPy bodies alone: how they walk over memory, and that no row sees another."""

import numpy as np
import pytest

from tensor_ops.numerics import blocks
from tensor_ops.op.arguments import DTYPES
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.ops import OPS

# The ops whose rows may take one of several ways, with a row for each of them.
WAYS = {
    "rms_norm": [1.0, 1e-25, 1e19],
    "add_rms_norm": [1.0, 1e-25, 1e19],
    "layer_norm": [1.0, 1e-25, 1e19],
    "softmax": [1.0, -1.0, 1e3],
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 512 bytes, so that small arrays take many."""
    monkeypatch.setattr(blocks, "BLOCK", 512)


def results(name, values, **kwargs):
    result = OPS[name].numpy(**values, **kwargs)
    return result if isinstance(result, tuple) else (result,)


def same(left, right):
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_blocks_do_not_show(name, dtype, monkeypatch):
    values = arguments(OPS[name], (3, 20, 12), Draw(dtype, f"blocks/{name}"))
    whole = results(name, values)
    monkeypatch.setattr(blocks, "BLOCK", 512)
    assert same(whole, results(name, values))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", WAYS)
def test_rows_do_not_see_each_other(name, dtype):
    draw = Draw(dtype, f"rows/{name}")
    values = arguments(OPS[name], (3, 100), draw)
    factors = np.array(WAYS[name])[:, None]
    values = {
        key: draw.cast(np.abs(value.astype(np.float64)) * factors) if value.ndim == 2 else value
        for key, value in values.items()
    }
    together = results(name, values)
    for row in range(3):
        alone = {k: v[row : row + 1] if v.ndim == 2 else v for k, v in values.items()}
        assert same([each[row : row + 1] for each in together], results(name, alone))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.usefixtures("small_blocks")
def test_in_place_over_any_full_input(name, dtype):
    op = OPS[name]
    values = arguments(op, (40, 12), Draw(dtype, f"in place/{name}"))
    expected = results(name, values)
    for argument in (key for key, kind in op.kinds.items() if kind.is_full):
        for place, like in enumerate(op.results_like):
            if not op.kinds[like].is_full:
                continue
            copies = {key: value.copy() for key, value in values.items()}
            out = [np.empty_like(each) for each in expected]
            out[place] = copies[argument]
            given = out[0] if op.outputs == 1 else tuple(out)
            assert same(expected, results(name, copies, out=given))


@pytest.mark.parametrize(
    ("x", "angles"),
    [((2, 3, 40, 8), (40, 4)), ((2, 40, 3, 8), (40, 1, 4)), ((2, 3, 8), ()), ((300, 8), (300, 1))],
)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_rope_repeats_angles_like_numpy(x, angles, interleaved):
    draw = Draw("float32", f"rope/{x}")
    values, cos, sin = draw.normal(*x), draw.normal(*angles), draw.normal(*angles)
    repeated = [np.broadcast_to(each, (*x[:-1], x[-1] // 2)).copy() for each in (cos, sin)]
    rope = OPS["rope"].numpy
    np.testing.assert_array_equal(
        rope(values, cos, sin, interleaved=interleaved),
        rope(values, *repeated, interleaved=interleaved),
    )


def test_rope_turns_an_array_that_repeats_itself():
    row = np.arange(8, dtype=np.float32)
    cos, sin = np.full((2, 4), 0.6, np.float32), np.full((2, 4), 0.8, np.float32)
    rope = OPS["rope"].numpy
    repeated = np.broadcast_to(row, (2, 8))
    np.testing.assert_array_equal(rope(repeated, cos, sin), rope(repeated.copy(), cos, sin))
    one = np.broadcast_to(np.float32(3), (2, 8))
    np.testing.assert_array_equal(rope(one, cos, sin), rope(one.copy(), cos, sin))
