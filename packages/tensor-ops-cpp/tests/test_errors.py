# ruff: noqa: E501  (a table of calls and messages, one to a line)
"""Errors come before any work, with the type and the facts promised."""

import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tensor_ops_cpp as t

X = np.ones((3, 8), np.float32)
W = np.ones(8, np.float32)
C = np.ones((3, 4), np.float32)
HALF = X.astype(np.float16)
SWAPPED = X.astype(X.dtype.newbyteorder())


def readonly(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def overlapping_pair():
    buffer = np.zeros(25, np.float32)
    return buffer[:24].reshape(3, 8), buffer[1:].reshape(3, 8)


def call_overlapping(op, *rest):
    x, out = overlapping_pair()
    return op(x, *rest, out=out)


def same_out_twice():
    out = np.empty_like(X)
    return t.add_rms_norm(X, X, W, out=(out, out))


def out_is_reversed():
    x = X.copy()
    return t.silu(x, out=x[::-1])


def out_over_weight():
    buffer = np.ones((3, 8), np.float32)
    return t.rms_norm(X, buffer[0], out=buffer)


def half_view_of_residual(residual):
    out = residual.view(np.float16)[:, :8], np.empty_like(X)
    return t.add_rms_norm(HALF, residual, W, out=out)


ERRORS = {
    # Arguments, as Python sorts them.
    "missing": (lambda: t.rms_norm(X), TypeError, "missing required argument 'weight'"),
    "nothing": (t.silu, TypeError, "missing required argument 'x'"),
    "too many": (lambda: t.silu(X, X), TypeError, "takes 1 positional arguments but 2 were given"),
    "keyword only": (lambda: t.rope(X, C, C, True), TypeError, "takes 3 positional arguments but 4"),
    "unexpected": (lambda: t.silu(X, axis=0), TypeError, "unexpected keyword argument 'axis'"),
    "duplicate": (lambda: t.silu(X, x=X), TypeError, "multiple values for argument 'x'"),
    "unexpected surrogate": (lambda: t.silu(X, **{"\ud800": 0}), TypeError, "unexpected keyword argument '\\ud800'; the arguments are"),
    # Arrays.
    "list": (lambda: t.silu([1.0]), TypeError, "x must be a numpy.ndarray, got list; "),
    "scalar": (lambda: t.silu(1.0), TypeError, "x must be a numpy.ndarray, got float; "),
    "numpy scalar": (lambda: t.silu(np.float32(1)), TypeError, "must be a numpy.ndarray, got numpy.float32"),
    "None": (lambda: t.rms_norm(X, None), TypeError, "weight must be a numpy.ndarray, got NoneType"),
    "masked": (lambda: t.silu(np.ma.masked_array([1.0])), TypeError, "got a MaskedArray"),
    "int": (lambda: t.silu(X.astype(int)), TypeError, "int64; the supported dtypes are float32, float16, bfloat16 and float64"),
    "complex": (lambda: t.silu(X.astype(complex)), TypeError, "complex128; the supported"),
    "object": (lambda: t.silu(X.astype(object)), TypeError, "object; the supported"),
    "bool": (lambda: t.silu(X > 0), TypeError, "bool; the supported"),
    "longdouble": (lambda: t.silu(X.astype(np.longdouble)), TypeError, "; the supported"),
    "other ml_dtypes": (lambda: t.silu(X.astype(ml_dtypes.float8_e4m3fn)), TypeError, "float8_e4m3fn; the supported"),
    "void": (lambda: t.silu(np.zeros(3, "V2")), TypeError, "; the supported"),
    "byte order": (lambda: t.silu(SWAPPED), TypeError, 'x.astype(x.dtype.newbyteorder("="))'),
    "byte order of out": (lambda: t.silu(X, out=SWAPPED.copy()), TypeError, "out must have native byte order"),
    "dtype of weight": (lambda: t.rms_norm(X, W.astype(np.float64)), TypeError, "weight must have x's dtype float32, got float64"),
    "dtype of up": (lambda: t.silu_mul(X, X.astype(np.float16)), TypeError, "up must have gate's dtype float32, got float16"),
    "dtype of out": (lambda: t.silu(X, out=X.astype(np.float64)), TypeError, "out must have x's dtype float32, got float64"),
    "float64 weight beside half": (lambda: t.rms_norm(HALF, W.astype(np.float64)), TypeError, "weight must have x's dtype float16, or float32, got float64; convert it with weight.astype(x.dtype)"),
    "two half dtypes": (lambda: t.rms_norm(HALF, W.astype(ml_dtypes.bfloat16)), TypeError, "weight must have x's dtype float16, or float32, got bfloat16"),
    "half weight beside float32": (lambda: t.rms_norm(X, W.astype(np.float16)), TypeError, "weight must have x's dtype float32, got float16"),
    "half bias beside float32 weight": (lambda: t.layer_norm(HALF, W, W.astype(np.float16)), TypeError, "bias must have weight's dtype float32, got float16; convert it with bias.astype(weight.dtype)"),
    "float32 bias beside half weight": (lambda: t.layer_norm(HALF, W.astype(np.float16), W), TypeError, "bias must have weight's dtype float16, got float32"),
    "half sin beside float32 cos": (lambda: t.rope(HALF, C, C.astype(np.float16)), TypeError, "sin must have cos's dtype float32, got float16"),
    "float32 up beside half": (lambda: t.silu_mul(HALF, X), TypeError, "up must have gate's dtype float16, got float32"),
    "byte order of float32 weight": (lambda: t.rms_norm(HALF, W.astype(W.dtype.newbyteorder())), TypeError, "weight must have native byte order"),
    "dtype of h": (lambda: t.add_rms_norm(HALF, X, W, out=(HALF.copy(), HALF.copy())), TypeError, "out[1] must have residual's dtype float32, got float16; give an array of dtype float32"),
    "dtype of y": (lambda: t.add_rms_norm(HALF, X, W, out=(X.copy(), X.copy())), TypeError, "out[0] must have x's dtype float16, got float32; give an array of dtype float16"),
    "half view of residual": (lambda: half_view_of_residual(X.copy()), ValueError, "out[0] overlaps residual"),
    # Shapes.
    "0-d": (lambda: t.softmax(np.array(1, np.float32)), ValueError, "x must have at least one axis"),
    "weight length": (lambda: t.rms_norm(X, W[:7]), ValueError, "weight must have shape (8,)"),
    "weight rank": (lambda: t.rms_norm(X, W[None]), ValueError, "got (1, 8)"),
    "empty weight": (lambda: t.rms_norm(X, W[:0]), ValueError, "got (0,)"),
    "bias length": (lambda: t.layer_norm(X, W, W[:1]), ValueError, "bias must have shape (8,)"),
    "residual": (lambda: t.add_rms_norm(X, X[:1], W), ValueError, "residual must have x's shape (3, 8), got (1, 8)"),
    "up": (lambda: t.gelu_mul(X, X[:, :4]), ValueError, "up must have gate's shape (3, 8), got (3, 4)"),
    "odd": (lambda: t.rope(X[:, :7], C, C), ValueError, "must have even length, got shape (3, 7)"),
    "cos": (lambda: t.rope(X, C[:2], C), ValueError, "cos must broadcast to (3, 4)"),
    "sin rank": (lambda: t.rope(X, C, C[None]), ValueError, "sin must broadcast to (3, 4)"),
    "out shape": (lambda: t.silu(X, out=np.empty((8, 3), np.float32)), ValueError, "out must have x's shape (3, 8), got (8, 3)"),
    # Scalars and choices.
    "eps str": (lambda: t.rms_norm(X, W, "1"), TypeError, "eps must be a real number, got str"),
    "eps bool": (lambda: t.rms_norm(X, W, True), TypeError, "eps must be a real number, got bool"),
    "eps numpy bool": (lambda: t.rms_norm(X, W, np.True_), TypeError, "eps must be a real number"),
    "eps complex": (lambda: t.rms_norm(X, W, 1j), TypeError, "eps must be a real number, got complex"),
    "eps None": (lambda: t.rms_norm(X, W, None), TypeError, "eps must be a real number, got NoneType"),
    "eps array": (lambda: t.rms_norm(X, W, np.ones(1)), TypeError, "eps must be a real number"),
    "eps timedelta": (lambda: t.rms_norm(X, W, np.timedelta64(1, "s")), TypeError, "eps must be a real number"),
    "eps negative": (lambda: t.rms_norm(X, W, -1e-6), ValueError, "eps must be finite and not negative, got -1e-06"),
    "eps nan": (lambda: t.rms_norm(X, W, float("nan")), ValueError, "eps must be finite"),
    "eps inf": (lambda: t.layer_norm(X, W, eps=np.float32("inf")), ValueError, "eps must be finite"),
    "eps huge": (lambda: t.rms_norm(X, W, 10**400), ValueError, "eps must be finite"),
    "scale inf": (lambda: t.softmax(X, float("inf")), ValueError, "scale must be finite, got inf"),
    "approximate": (lambda: t.gelu(X, "erf"), ValueError, "approximate must be 'tanh' or 'none', got 'erf'"),
    "approximate type": (lambda: t.gelu(X, None), TypeError, "approximate must be a str"),
    "interleaved": (lambda: t.rope(X, C, C, interleaved=1), TypeError, "interleaved must be a bool, got int"),
    "threads": (lambda: t.silu(X, num_threads=0), ValueError, "num_threads must be at least 1, got 0"),
    "threads negative": (lambda: t.silu(X, num_threads=-(10**30)), ValueError, "num_threads must be at least 1"),
    "threads float": (lambda: t.silu(X, num_threads=1.0), TypeError, "num_threads must be an int or None, got float"),
    "threads bool": (lambda: t.silu(X, num_threads=True), TypeError, "num_threads must be an int or None, got bool"),
    # Outputs.
    "out list": (lambda: t.silu(X, out=[0]), TypeError, "out must be a numpy.ndarray, got list"),
    "out tuple": (lambda: t.silu(X, out=(X,)), TypeError, "out must be a numpy.ndarray, got tuple"),
    "out not tuple": (lambda: t.add_rms_norm(X, X, W, out=X), TypeError, "out must be a tuple of two arrays, (y, h)"),
    "out short": (lambda: t.add_rms_norm(X, X, W, out=(X,)), TypeError, "out must be a tuple of two arrays"),
    "readonly": (lambda: t.silu(X, out=readonly(X)), ValueError, "out is read-only"),
    "readonly h": (lambda: t.add_rms_norm(X, X, W, out=(X.copy(), readonly(X))), ValueError, "out[1] is read-only"),
    "overlap": (lambda: call_overlapping(t.silu), ValueError, "out overlaps x without being exactly the same view"),
    "overlap row op": (lambda: call_overlapping(t.softmax), ValueError, "out overlaps x"),
    "reversed": (out_is_reversed, ValueError, "out overlaps x"),
    "out over weight": (out_over_weight, ValueError, "out overlaps weight; "),
    "zero strides": (lambda: t.silu(X, out=np.lib.stride_tricks.as_strided(X.copy(), (3, 8), (0, 4))), ValueError, "out overlaps itself"),
    "y is h": (same_out_twice, ValueError, "out[0] and out[1] overlap"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(name):
    call, error, message = ERRORS[name]
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert str(caught.value).partition(": ")[0] in t.ops
    assert type(caught.value) is error


OUTPUT_ERRORS = [
    lambda: t.silu(X, out=X.astype(np.float64)),
    lambda: t.silu(X, out=SWAPPED.copy()),
    lambda: t.silu(X, out=readonly(X)),
    lambda: t.silu(X, out=X.tolist()),
    lambda: t.silu(X, out=np.ma.masked_array(X.copy())),
    lambda: t.silu(X, out=X.astype(int)),
]


@pytest.mark.parametrize("call", OUTPUT_ERRORS)
def test_advice_for_an_output_makes_no_copy(call):
    """The caller would never see the result that is written there."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    for word in ("astype", "copy", "asarray", "filled", "convert"):
        assert word not in str(caught.value)


def test_failed_call_leaves_out_alone():
    out = np.full_like(X, 7)
    with pytest.raises(ValueError, match="weight must have shape"):
        t.rms_norm(X, W[:1], out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    "eps", [0, 1, np.float32(1e-6), np.int8(1), np.float64(1e-6), ml_dtypes.bfloat16(0.5)]
)
def test_scalar_types(eps):
    assert np.array_equal(t.rms_norm(X, W, eps), t.rms_norm(X, W, float(eps)))


class Awkward(int):
    """A number whose conversion does what it is told."""

    def __float__(self):
        return self.convert()


def test_error_of_a_number_is_passed_on():
    eps = Awkward(1)
    eps.convert = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        t.rms_norm(X, W, eps)


def test_number_that_changes_the_array():
    def convert():
        x.resize((1, 8), refcheck=False)
        return 1.0

    x = np.ones((8, 1), np.float32)
    eps = Awkward(1)
    eps.convert = convert
    with pytest.raises(ValueError, match=re.escape("weight must have shape (8,)")):
        t.rms_norm(x, W[:1], eps)


def test_overlap_is_not_for_a_subclass_to_deny():
    class Denies(np.ndarray):
        def __array_function__(self, *args):
            return False

    x, out = overlapping_pair()
    with pytest.raises(ValueError, match="out overlaps x"):
        t.silu(x.view(Denies), out=out.view(Denies))


def test_overlap_of_many_axes():
    """The search is exact where NumPy's gives up."""
    x_strides = [13038538, 8670344, 14804969, 14509401, 15490195, 9862114, 9137599]
    x_strides += [15629477, 8574012, 12930713, 9063049, 10902773, 12424043]
    out_strides = [1211, 2006, 3605, 9284, 27398, 81836, 245258, 734925, 2204770]
    out_strides += [6614385, 19840800, 59522196, 178564800]
    buffer = np.zeros(2**29, np.float16)

    def view(start, strides):
        strides = [2 * stride for stride in strides]
        return np.lib.stride_tricks.as_strided(buffer[start:], (2,) * 13, strides)

    x, out = view(0, x_strides), view(1, out_strides)
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(x, out, 10**6)
    assert t.silu(x, out=out) is out
    # One element of each at the same place.
    shared = sum(x_strides[1::2]) - sum(out_strides[:12:3])
    with pytest.raises(ValueError, match="out overlaps x"):
        t.silu(x, out=view(shared, out_strides))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
@pytest.mark.unsanitized(reason="AddressSanitizer does not survive a limit of memory")
def test_memory_error_for_gathered_rows():
    code = """
import resource
import numpy as np, tensor_ops_cpp as t

x = np.ones((1, 2**22), np.float32)[:, ::2]
out = np.empty_like(x)
expected = t.softmax(x, out=out).tobytes()
pages = int(open("/proc/self/statm").read().split()[0])
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**20, most))
for _ in range(2):
    try:
        t.softmax(x, out=out)
    except MemoryError as error:
        assert str(error).startswith("softmax: no memory to gather the rows"), error
    else:
        raise AssertionError("no error")
resource.setrlimit(resource.RLIMIT_AS, (most, most))
assert t.softmax(x, out=out).tobytes() == expected
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_memory_error():
    x = np.lib.stride_tricks.as_strided(X, (2**45, 8), (0, 4))
    with pytest.raises(MemoryError):
        t.silu(x)


@pytest.mark.parametrize("n", [0, -1, 2**70])
def test_set_num_threads_range(n, threads):
    if n > 0:
        t.set_num_threads(n)
        assert t.get_num_threads() >= 64
    else:
        with pytest.raises(ValueError, match="at least 1"):
            t.set_num_threads(n)


@pytest.mark.parametrize("n", [1.5, "2", None, True])
def test_set_num_threads_type(n):
    with pytest.raises(TypeError, match="n must be an int"):
        t.set_num_threads(n)
