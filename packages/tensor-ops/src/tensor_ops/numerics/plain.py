"""Plain expressions of NumPy, as a user would write them without this library.

They are what `benchmark` compares the backends with, not what any backend runs. The expressions
that several ops share are here; the others are in the op files, as ``plain=``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["caller", "gelu", "gelu_backward", "rms_norm", "rms_norm_backward"]

Array = Any


def caller(expression: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """Return the function that evaluates an expression for a dtype.

    Half types pass through float32, in which NumPy is many times faster.
    """
    if dtype not in ("float16", "bfloat16"):
        return expression

    def through_float32(*arrays: Array, **options: Any) -> Any:
        result = expression(*(array.astype(np.float32) for array in arrays), **options)
        narrow = arrays[0].dtype
        if isinstance(result, tuple):
            return tuple(each.astype(narrow) for each in result)
        return result.astype(narrow)

    return through_float32


def rms_norm(x: Array, weight: Array) -> Array:
    """Return `x` over its root mean square, times `weight`."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weight


def rms_norm_backward(grad: Array, x: Array, weight: Array) -> tuple[Array, Array]:
    """Return the gradients with respect to `x` and to the weight."""
    inverse = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    normalized, along = x * inverse, grad * weight
    of_x = inverse * (along - normalized * np.mean(along * normalized, axis=-1, keepdims=True))
    return of_x, (grad * normalized).reshape(-1, x.shape[-1]).sum(axis=0)


def gelu(x: Array, approximate: str) -> Array:
    """Return `x` times the normal distribution function, which NumPy has not: SciPy's ``erf``."""
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x * 0.7071067811865476))


def gelu_backward(grad: Array, x: Array, approximate: str) -> Array:
    """Return `grad` times the derivative of gelu at `x`."""
    if approximate == "tanh":
        tanh = np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
        inner = 0.7978845608028654 * (1 + 0.134145 * x * x)
        return grad * 0.5 * (1 + tanh + x * (1 - tanh * tanh) * inner)
    from scipy.special import erf

    density = 0.3989422804014327 * np.exp(-0.5 * x * x)
    return grad * (0.5 * (1 + erf(x * 0.7071067811865476)) + x * density)
