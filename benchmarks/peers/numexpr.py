"""numexpr: expressions compiled once and evaluated block by block, the sums of rows by NumPy.

Constants are arrays of the dtype, since a number in the text would make float32 float64.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import numexpr
import numpy as np

from comparison.cases import Case
from peers import UnsupportedError, Way
from tensor_ops.variants import VARIANTS

LABEL = "numexpr"
PACKAGES = ("numexpr",)

RMS_EPS, LAYER_EPS = 1e-6, 1e-5
CONSTANTS = {
    "half": 0.5,
    "one": 1.0,
    "outer": math.sqrt(2 / math.pi),
    "cubic": 0.044715,
}

Array = Any

SIGMOID_LINEAR = "x / (one + exp(-x))"
GELU_TANH = "half * x * (one + tanh(outer * (x + cubic * x * x * x)))"


def start(threads: int) -> None:
    """Set the number of threads."""
    numexpr.set_num_threads(threads)


def ways(case: Case, values: dict[str, Array], out: tuple[Array, ...] | None) -> dict[str, Way]:
    """Return the call of an expression, with what NumPy does before it."""
    if case.dtype not in ("float32", "float64"):
        raise UnsupportedError(f"numexpr has no {case.dtype}")
    if case.variant.endswith(":none"):
        raise UnsupportedError("numexpr has no erf")
    outputs = VARIANTS[case.variant].op.outputs
    targets = out if out is not None else (None,) * outputs
    return {"": Way(functools.partial(FORMULAS[case.variant], *values.values(), *targets))}


@functools.cache
def _compiled(text: str, names: tuple[str, ...], dtype: Any) -> tuple[Any, tuple[Array, ...]]:
    constants = [name for name in CONSTANTS if re.search(rf"\b{name}\b", text)]
    kind = float if dtype == np.float32 else np.float64  # what numexpr calls float has 32 bits
    signature = [(name, kind) for name in (*names, *constants)]
    values = tuple(np.asarray(CONSTANTS[name], dtype) for name in constants)
    return numexpr.NumExpr(text, signature), values


def evaluate(text: str, out: Array | None, **arrays: Array) -> Array:
    """Evaluate an expression of arrays of one dtype."""
    dtype = next(iter(arrays.values())).dtype
    expression, constants = _compiled(text, tuple(arrays), dtype)
    return expression(*arrays.values(), *constants, out=out, ex_uses_vml=False)


def rms_norm(x: Array, weight: Array, out: Array | None) -> Array:
    squares = np.vecdot(x, x)[:, None]
    scale = 1 / np.sqrt(squares / x.shape[-1] + RMS_EPS)
    return evaluate("x * scale * weight", out, x=x, scale=scale, weight=weight)


def add_rms_norm(
    x: Array, residual: Array, weight: Array, out: Array | None, total: Array | None
) -> tuple[Array, Array]:
    summed = np.add(x, residual, out=total)
    return rms_norm(summed, weight, out), summed


def layer_norm(x: Array, weight: Array, bias: Array, out: Array | None) -> Array:
    centred = np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    squares = np.vecdot(centred, centred)[:, None]
    scale = 1 / np.sqrt(squares / x.shape[-1] + LAYER_EPS)
    text = "x * scale * weight + bias"
    return evaluate(text, centred, x=centred, scale=scale, weight=weight, bias=bias)


def softmax(x: Array, out: Array | None) -> Array:
    powers = evaluate("exp(x - largest)", out, x=x, largest=x.max(axis=-1, keepdims=True))
    powers *= 1 / powers.sum(axis=-1, keepdims=True)
    return powers


def rope(x: Array, cos: Array, sin: Array, out: Array | None) -> Array:
    made = np.empty_like(x) if out is None else out
    half = x.shape[-1] // 2
    _rotate(x[..., :half], x[..., half:], cos, sin, made[..., :half], made[..., half:])
    return made


def rope_interleaved(x: Array, cos: Array, sin: Array, out: Array | None) -> Array:
    made = np.empty_like(x) if out is None else out
    _rotate(x[..., ::2], x[..., 1::2], cos, sin, made[..., ::2], made[..., 1::2])
    return made


def _rotate(
    first: Array, second: Array, cos: Array, sin: Array, out_first: Array, out_second: Array
) -> None:
    evaluate("a * c - b * s", out_first, a=first, b=second, c=cos, s=sin)
    evaluate("b * c + a * s", out_second, a=first, b=second, c=cos, s=sin)


FORMULAS: dict[str, Callable[..., Any]] = {
    "silu": lambda x, out: evaluate(SIGMOID_LINEAR, out, x=x),
    "silu_mul": lambda gate, up, out: evaluate(f"{SIGMOID_LINEAR} * up", out, x=gate, up=up),
    "gelu:tanh": lambda x, out: evaluate(GELU_TANH, out, x=x),
    "gelu_mul:tanh": lambda gate, up, out: evaluate(f"{GELU_TANH} * up", out, x=gate, up=up),
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "softmax": softmax,
    "rope": rope,
    "rope:interleaved": rope_interleaved,
}

HAS = tuple(FORMULAS)
