"""NumPy as a good user writes it.

Where results are new, the plain expression. Where memory is given, blocks that stay in the cache,
every step in place; rows of half types pass through float32, in which NumPy is many times faster.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from comparison.cases import Case
from peers import UnsupportedError, Way

LABEL = "NumPy"
PACKAGES = ("numpy", "scipy")

# Elements of a block: three such arrays of float32 fit into a cache of 1 MB.
BLOCK = 2**16
RMS_EPS, LAYER_EPS = 1e-6, 1e-5
ROOT_HALF = 0.7071067811865476
ROOT_TWO_OVER_PI = 0.7978845608028654
CUBIC = 0.044715

Array = Any


def start(threads: int) -> None:
    """Do nothing: NumPy uses one thread for all of this."""


def ways(case: Case, values: dict[str, Array], out: tuple[Array, ...] | None) -> dict[str, Way]:
    """Return the plain expression, or the loop over blocks."""
    if case.variant not in PLAIN:
        raise UnsupportedError(f"no {case.variant} is written for NumPy")
    if case.variant.endswith(":none"):
        import scipy.special  # noqa: F401
    given = tuple(values.values())
    is_half = case.dtype in ("float16", "bfloat16")
    if out is None:
        plain = _through_float32 if is_half else _as_it_is
        return {"": Way(functools.partial(plain, PLAIN[case.variant], given))}
    blocked = _blocks_through_float32 if is_half else _blocks
    return {"": Way(functools.partial(blocked, IN_PLACE[case.variant], given, out))}


def _as_it_is(function: Callable[..., Any], given: tuple[Array, ...]) -> Any:
    return function(*given)


def _through_float32(function: Callable[..., Any], given: tuple[Array, ...]) -> Any:
    result = function(*(array.astype(np.float32) for array in given))
    dtype = given[0].dtype
    if isinstance(result, tuple):
        return tuple(each.astype(dtype) for each in result)
    return result.astype(dtype)


def _blocks(function: Callable[..., None], given: tuple[Array, ...], out: tuple[Array, ...]) -> Any:
    """Call a function on blocks of rows; what is a vector goes to every block."""
    step = max(1, BLOCK // (out[0].size // len(out[0])))
    for start in range(0, len(out[0]), step):
        rows = slice(start, start + step)
        function(*_cut(given, rows), *(array[rows] for array in out))
    return out


def _blocks_through_float32(
    function: Callable[..., None], given: tuple[Array, ...], out: tuple[Array, ...]
) -> Any:
    step = max(1, BLOCK // (out[0].size // len(out[0])))
    buffers = [np.empty((step, *array.shape[1:]), np.float32) for array in out]
    for start in range(0, len(out[0]), step):
        rows = slice(start, start + step)
        targets = [array[rows] for array in out]
        results = [buffer[: len(targets[0])] for buffer in buffers]
        function(*(array.astype(np.float32) for array in _cut(given, rows)), *results)
        for target, result in zip(targets, results, strict=True):
            target[...] = result
    return out


def _cut(given: tuple[Array, ...], rows: slice) -> list[Array]:
    return [array[rows] if array.ndim > 1 else array for array in given]


# --- plain expressions -------------------------------------------------------


def sigmoid_linear(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(ROOT_TWO_OVER_PI * (x + CUBIC * x * x * x)))


def gelu_erf(x: Array) -> Array:
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x * ROOT_HALF))


def rms_norm(x: Array, weight: Array) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + RMS_EPS) * weight


def add_rms_norm(x: Array, residual: Array, weight: Array) -> tuple[Array, Array]:
    total = x + residual
    return rms_norm(total, weight), total


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + LAYER_EPS) * weight + bias


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def rope(x: Array, cos: Array, sin: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rope_interleaved(x: Array, cos: Array, sin: Array) -> Array:
    even, odd = x[..., ::2], x[..., 1::2]
    turned = np.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
    return turned.reshape(x.shape)


PLAIN: dict[str, Callable[..., Any]] = {
    "silu": sigmoid_linear,
    "silu_mul": lambda gate, up: sigmoid_linear(gate) * up,
    "gelu:tanh": gelu_tanh,
    "gelu:none": gelu_erf,
    "gelu_mul:tanh": lambda gate, up: gelu_tanh(gate) * up,
    "gelu_mul:none": lambda gate, up: gelu_erf(gate) * up,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "softmax": softmax,
    "rope": rope,
    "rope:interleaved": rope_interleaved,
}


# --- in place, on one block --------------------------------------------------


def sigmoid_linear_into(x: Array, out: Array) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.divide(x, out, out=out)


def gelu_tanh_into(x: Array, out: Array) -> None:
    np.multiply(x, x, out=out)
    out *= CUBIC * ROOT_TWO_OVER_PI
    out += ROOT_TWO_OVER_PI
    out *= x
    np.tanh(out, out=out)
    _half_of_one_more(x, out)


def gelu_erf_into(x: Array, out: Array) -> None:
    from scipy.special import erf

    np.multiply(x, ROOT_HALF, out=out)
    erf(out, out=out)
    _half_of_one_more(x, out)


def _half_of_one_more(x: Array, out: Array) -> None:
    out += 1
    out *= x
    out *= 0.5


def rms_norm_into(x: Array, weight: Array, out: Array) -> None:
    squares = np.vecdot(x, x)[:, None]
    np.multiply(x, 1 / np.sqrt(squares / x.shape[-1] + RMS_EPS), out=out)
    out *= weight


def add_rms_norm_into(x: Array, residual: Array, weight: Array, out: Array, total: Array) -> None:
    np.add(x, residual, out=total)
    rms_norm_into(total, weight, out)


def layer_norm_into(x: Array, weight: Array, bias: Array, out: Array) -> None:
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    squares = np.vecdot(out, out)[:, None]
    out *= 1 / np.sqrt(squares / x.shape[-1] + LAYER_EPS)
    out *= weight
    out += bias


def softmax_into(x: Array, out: Array) -> None:
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out *= 1 / out.sum(axis=-1, keepdims=True)


def rope_into(x: Array, cos: Array, sin: Array, out: Array) -> None:
    half = x.shape[-1] // 2
    _rotate(x[..., :half], x[..., half:], cos, sin, out[..., :half], out[..., half:])


def rope_interleaved_into(x: Array, cos: Array, sin: Array, out: Array) -> None:
    _rotate(x[..., ::2], x[..., 1::2], cos, sin, out[..., ::2], out[..., 1::2])


def _rotate(
    first: Array, second: Array, cos: Array, sin: Array, out_first: Array, out_second: Array
) -> None:
    np.multiply(first, cos, out=out_first)
    out_first -= second * sin
    np.multiply(second, cos, out=out_second)
    out_second += first * sin


def _gated(activation: Callable[[Array, Array], None]) -> Callable[..., None]:
    def into(gate: Array, up: Array, out: Array) -> None:
        activation(gate, out)
        out *= up

    return into


IN_PLACE: dict[str, Callable[..., None]] = {
    "silu": sigmoid_linear_into,
    "silu_mul": _gated(sigmoid_linear_into),
    "gelu:tanh": gelu_tanh_into,
    "gelu:none": gelu_erf_into,
    "gelu_mul:tanh": _gated(gelu_tanh_into),
    "gelu_mul:none": _gated(gelu_erf_into),
    "rms_norm": rms_norm_into,
    "add_rms_norm": add_rms_norm_into,
    "layer_norm": layer_norm_into,
    "softmax": softmax_into,
    "rope": rope_into,
    "rope:interleaved": rope_interleaved_into,
}
