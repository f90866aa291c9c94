"""Float32 weights, angles and residuals beside half inputs: every mixture, layout and row form."""

import ml_dtypes
import numpy as np
import pytest
from emulated import ExchangeLibrary, InterfaceArray

import tensor_ops_cuda
from tensor_ops.op import accuracy
from tensor_ops.op.samples import Draw, arguments
from tensor_ops.ops import OPS

pytestmark = pytest.mark.usefixtures("device")

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
MIXTURES = [(name, wide) for name in tensor_ops_cuda.ops for wide in OPS[name].mixtures]
# Parts of a warp, a warp, a block with few and many vectors of each lane; whole vectors and not.
LENGTHS = (2, 14, 60, 250, 1022, 2048, 8192, 16386, 24576)
# A cluster's blocks, and parts.
LONG = (40_002, 270_000)

mixtures = pytest.mark.parametrize(("name", "wide"), MIXTURES, ids=str)
halves = pytest.mark.parametrize("half", HALVES)


def draw(name, half, wide, shape):
    return arguments(OPS[name], shape, Draw(half, f"{name} {wide} {shape}"), wide)


def run(name, values, **options):
    result = tensor_ops_cuda.ops[name](**values, **options)
    return result if isinstance(result, tuple) else (result,)


def check(name, values, results):
    """Compare results with the op's meaning in float64, by the bound of each result's dtype."""
    op = OPS[name]
    wide = {
        key: each.astype("d") if isinstance(each, np.ndarray) else each
        for key, each in values.items()
    }
    with np.errstate(all="ignore"):
        expected = op.numpy(**wide)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, wanted, like in zip(results, expected, op.results_like, strict=True):
        assert got.dtype == values[like].dtype
        measured = accuracy.measure(got, wanted, op.bounds[got.dtype.name])
        assert measured.within, f"{measured.problem or measured.error}, allowed {measured.limit}"


def same_bits(a, b):
    assert a.dtype == b.dtype
    assert a.tobytes() == b.tobytes()


@halves
@mixtures
@pytest.mark.parametrize("n", LENGTHS)
def test_rows_of_every_form(name, wide, half, n):
    values = draw(name, half, wide, (5, n))
    results = run(name, values)
    check(name, values, results)
    one = {key: each[2:3] if each.shape[0] == 5 else each for key, each in values.items()}
    for whole, alone in zip(results, run(name, one), strict=True):
        same_bits(alone, whole[2:3])


@halves
@mixtures
@pytest.mark.parametrize("n", LONG)
def test_long_rows(name, wide, half, n):
    values = draw(name, half, wide, (2, n))
    check(name, values, run(name, values))


@halves
@mixtures
@pytest.mark.parametrize("n", [6, 64, 4098, 40_000])
def test_values_of_the_half_type_give_the_bits_of_one_dtype(name, wide, half, n):
    values = draw(name, half, (), (3, n))
    for each in values.values():
        each.reshape(-1)[::5] = 0
        each.reshape(-1)[1::7] *= -1
    widened = {key: values[key].astype(np.float32) for key in wide}
    for one, mixed in zip(run(name, values), run(name, values | widened), strict=True):
        same_bits(mixed.astype(one.dtype), one)


@halves
@mixtures
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3e4])
def test_special_values(name, wide, half, special):
    values = draw(name, half, wide, (4, 130))
    values["x"][1, 17] = special
    for key in wide:
        values[key].reshape(-1)[-1] = special
    check(name, values, run(name, values))


@halves
@pytest.mark.parametrize("n", [30, 3000, 40_000])
@pytest.mark.parametrize("scale", [1e25, 1e-25])
def test_residuals_whose_squares_leave_float32(half, n, scale):
    values = draw("add_rms_norm", half, ("residual",), (3, n))
    values["residual"] *= np.float32(scale)
    values["x"][:] = 0
    values["eps"] = 0.0
    y, h = run("add_rms_norm", values)
    same_bits(h, values["residual"])
    check("add_rms_norm", values, (y, h))


@halves
@pytest.mark.parametrize("interleaved", [False, True])
def test_turned_pairs_that_cancel(rng, half, interleaved):
    """a cos - b sin with float32 angles has more digits than float32 where a product is rounded."""
    x = rng.normal(size=(50, 64)).astype(HALVES[half])
    first, second = (x[:, ::2], x[:, 1::2]) if interleaved else (x[:, :32], x[:, 32:])
    a, b = first.astype("d"), second.astype("d")
    length = np.hypot(a, b)
    cos, sin = ((b / length).astype("f"), (a / length).astype("f"))
    values = {"x": x, "cos": cos, "sin": sin, "interleaved": interleaved}
    check("rope", values, run("rope", values))


LAYOUTS = {
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
    "columns": np.asfortranarray,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "unaligned": lambda a: np.frombuffer(b"?" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "offset": lambda a: np.concatenate([a.reshape(-1)[:1], a.reshape(-1)])[1:].reshape(a.shape),
}


@halves
@mixtures
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_host_arrays(name, wide, half, layout):
    for shape in ((6, 70), (2, 5, 128)):
        values = draw(name, half, wide, shape)
        laid = {key: LAYOUTS[layout](each) for key, each in values.items()}
        for got, plain in zip(run(name, laid), run(name, values), strict=True):
            same_bits(got, plain)


@mixtures
def test_rows_that_repeat(name, wide):
    values = draw(name, "float16", wide, (6, 64))
    for key, each in values.items():
        if each.ndim > 1:
            values[key] = np.broadcast_to(each[:1], each.shape)
    plain = {key: each.copy() for key, each in values.items()}
    for got, expected in zip(run(name, values), run(name, plain), strict=True):
        same_bits(got, expected)


@halves
@mixtures
@pytest.mark.usefixtures("small_chunks")
def test_host_arrays_in_chunks(name, wide, half):
    from tensor_ops_cuda import _native

    values = draw(name, half, wide, (40, 3, 50))
    results = run(name, values)
    check(name, values, results)
    _native.set_chunk_bytes(2**40)
    for cut, whole in zip(results, run(name, values), strict=True):
        same_bits(cut, whole)


@halves
@mixtures
@pytest.mark.parametrize("n", [30, 64, 3000])
def test_in_place(name, wide, half, n):
    values = draw(name, half, wide, (5, n))
    expected = run(name, values)
    for on_device in (False, True):
        mine = {key: each.copy() for key, each in values.items()}
        if on_device:
            mine = {key: tensor_ops_cuda.to_device(each) for key, each in mine.items()}
        out = tuple(mine[like] for like in OPS[name].results_like)
        results = run(name, mine, out=out if len(out) > 1 else out[0])
        for got, place, wanted in zip(results, out, expected, strict=True):
            assert got is place
            same_bits(got.numpy() if on_device else got, wanted)


@halves
@mixtures
def test_device_arrays(runtime, name, wide, half):
    """Arrays of our own and of a library with the exchange API; a result has its own dtype."""
    library = ExchangeLibrary(runtime, runtime.stream())
    for shape in ((3, 40), (2, 4100)):
        values = draw(name, half, wide, shape)
        expected = run(name, values)
        own = {key: tensor_ops_cuda.to_device(each) for key, each in values.items()}
        lent = {key: library.Tensor.of(runtime, each) for key, each in values.items()}
        for given in (own, lent):
            for got, wanted in zip(run(name, given), expected, strict=True):
                assert str(got.dtype) == str(wanted.dtype)
                same_bits(got.numpy(), wanted)


VIEWS = {
    "padded rows": lambda a: a[..., 2:-4],
    "every second row": lambda a: a[::2],
    "every second element": lambda a: a[..., ::2],
    "reversed rows": lambda a: a[::-1],
    "reversed elements": lambda a: a[..., ::-1],
    "repeated rows": lambda a: np.broadcast_to(a[:1], a.shape),
    "turned": lambda a: a.T,
}


@pytest.mark.parametrize("x_view", VIEWS)
@pytest.mark.parametrize("view", VIEWS)
def test_layouts_of_device_arrays(runtime, rng, x_view, view):
    """Each argument has its own layout, and its own size of an element."""
    shape = (12, 12) if "turned" in (x_view, view) else (12, 24)
    x = VIEWS[x_view](rng.normal(size=shape).astype(np.float16))
    residual = VIEWS[view](rng.normal(size=shape).astype(np.float32))
    rows, n = min(len(x), len(residual)), min(x.shape[-1], residual.shape[-1])
    x, residual = x[:rows, :n], residual[:rows, :n]
    weight = rng.normal(size=2 * n).astype(np.float32)[::-2]
    given = {"x": x, "residual": residual, "weight": weight}
    arrays = {key: InterfaceArray.of(runtime, each) for key, each in given.items()}
    plain = {key: each.copy() for key, each in given.items()}
    for got, expected in zip(run("add_rms_norm", arrays), run("add_rms_norm", plain), strict=True):
        same_bits(got.numpy(), expected)


def refuse(name, values, message, error=TypeError, **options):
    with pytest.raises(error) as caught:
        run(name, values, **options)
    assert message in str(caught.value)


@halves
def test_dtypes_that_do_not_go_together(half):
    other = {"float16": HALVES["bfloat16"], "bfloat16": HALVES["float16"]}[half]
    norm = draw("layer_norm", half, (), (2, 8))
    wrong = norm["weight"].astype(np.float64)
    refuse(
        "layer_norm",
        norm | {"weight": wrong},
        f"layer_norm: weight must have x's dtype {half}, or float32, got float64; "
        "convert it with weight.astype(x.dtype)",
    )
    refuse("layer_norm", norm | {"weight": norm["weight"].astype(other)}, f"got {other.name}")
    wide = norm["weight"].astype(np.float32)
    refuse(
        "layer_norm",
        norm | {"weight": wide},
        f"layer_norm: bias must have weight's dtype float32, got {half}; "
        "convert it with bias.astype(weight.dtype)",
    )
    refuse(
        "layer_norm", norm | {"bias": wide}, f"bias must have weight's dtype {half}, got float32"
    )
    single = {key: each.astype(np.float32) for key, each in norm.items()}
    refuse(
        "layer_norm",
        single | {"weight": norm["weight"]},
        f"weight must have x's dtype float32, got {half}; convert it",
    )
    gate = norm["x"]
    refuse(
        "silu_mul",
        {"gate": gate, "up": gate.astype(np.float32)},
        f"silu_mul: up must have gate's dtype {half}, got float32; convert it",
    )


@halves
def test_outputs_have_their_own_dtypes(half):
    values = draw("add_rms_norm", half, ("residual",), (2, 8))
    short, wide = np.empty((2, 8), HALVES[half]), np.empty((2, 8), np.float32)
    refuse(
        "add_rms_norm", values,
        f"add_rms_norm: out[1] must have residual's dtype float32, got {half}; "
        "give an array of dtype float32",
        out=(short, short.copy()),
    )  # fmt: skip
    refuse(
        "add_rms_norm", values,
        f"out[0] must have x's dtype {half}, got float32; give an array of dtype {half}",
        out=(wide, wide.copy()),
    )  # fmt: skip
    y, h = run("add_rms_norm", values, out=(short, wide))
    assert y is short
    assert h is wide


@halves
def test_a_result_over_an_argument_of_another_dtype(half):
    values = draw("add_rms_norm", half, ("residual",), (4, 8))
    over = values["residual"].view(HALVES[half])[:, :8]
    refuse(
        "add_rms_norm", values, "out[0] overlaps residual", ValueError,
        out=(over, np.empty((4, 8), np.float32)),
    )  # fmt: skip
