"""Types of the keys and values in caches."""

import numpy as np

from tensor_ops_decode.kinds.kind import Array

__all__ = ["CACHE_DTYPES", "element_step", "head_bytes", "rounded"]

CACHE_DTYPES = ("float32", "float16", "int8")

# So many elements of a head share a scale, in float16, in a cache of int8.
_SCALED = 32
_LARGEST = 127


def head_bytes(dtype: str, head_size: int) -> int:
    """Return the bytes of a key, or a value, of one head."""
    if dtype == "int8":
        return head_size + 2 * -(-head_size // _SCALED)
    return head_size * np.dtype(dtype).itemsize


def rounded(dtype: str, x: Array) -> Array:
    """Return the numbers that a cache keeps in the place of these; rows are heads.

    "float32" stands for the precision of `x`.

    Examples
    --------
    >>> import numpy as np
    >>> rounded("int8", np.array([[1.0, 0.4, -127.0]]))
    array([[   1.,    0., -127.]])
    """
    if dtype == "int8":
        return _rounded_to_int8(x)
    return x.astype(np.float16).astype(x.dtype) if dtype == "float16" else x


def element_step(kept: Array) -> Array:
    """Return the distance of neighbours in a cache of int8 around what it keeps."""
    size = kept.shape[-1]
    padding = [(0, 0)] * (kept.ndim - 1) + [(0, -size % _SCALED)]
    groups = np.pad(np.abs(kept), padding).reshape(*kept.shape[:-1], -1, _SCALED)
    return groups.max(axis=-1).repeat(_SCALED, axis=-1)[..., :size] / _LARGEST


def _rounded_to_int8(x: Array) -> Array:
    largest = element_step(x)
    # Beyond float16, and of NaN, all elements become NaN.
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        scale = largest.astype(np.float16).astype(x.dtype)
        is_ordinary = np.isfinite(scale) & (scale > 0)
        steps = np.where(is_ordinary, np.rint(x / scale), 0)
        return (np.clip(steps, -_LARGEST, _LARGEST) * scale).astype(x.dtype)
