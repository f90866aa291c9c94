"""NumPy as a good user writes it.

Where results are new, the plain expression in the op's own file. Where memory is given, blocks that
stay in the cache, every step in place; rows of half types pass through float32, in which NumPy is
many times faster.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from comparison.cases import Case
from peers import UnsupportedError, Way
from tensor_ops.numerics import plain
from tensor_ops.variants import VARIANTS

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
    variant = VARIANTS[case.variant]
    if out is None and variant.op.plain is None:
        raise UnsupportedError(f"{variant.op.name} has no plain expression")
    if case.variant.endswith(":none"):
        import scipy.special  # noqa: F401
    given = tuple(values.values())
    if out is None:
        expression = plain.caller(variant.op.plain, case.dtype)
        return {"": Way(functools.partial(expression, *given, **variant.options))}
    blocked = _blocks_through_float32 if case.dtype in ("float16", "bfloat16") else _blocks
    return {"": Way(functools.partial(blocked, IN_PLACE[case.variant], given, out))}


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

HAS = tuple(IN_PLACE)
