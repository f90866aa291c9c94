"""The checks of an op's arguments, for backends that are written in Python.

Native backends check in their own code, with the same exception types.

This file is also part of tensor-ops-opencl, which works without tensor-ops (decision 0022): from
its package it imports only what goes with it, by a relative import.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from .arguments import ParameterKind, dtype_name, is_half, type_name

__all__ = [
    "NUMPY_ARRAYS",
    "ArrayType",
    "check_array",
    "check_ndarray",
    "check_outputs",
    "check_values",
    "output_names",
]


class ArrayType(NamedTuple):
    """The array type of a library, and the questions that checks ask about its arrays."""

    # The name in error messages.
    name: str
    # The suggestion of error messages for any other object.
    conversion: str
    # Whether an object is such an array.
    is_instance: Callable[[Any], bool]
    # Whether two of them share memory.
    share_memory: Callable[[Any, Any], bool]
    # Whether two of the same shape hold each element in the same place.
    is_same_view: Callable[[Any, Any], bool]


def _is_ndarray(value: Any) -> bool:
    # The type of most arrays, asked first: np.ma is slow to look up.
    if type(value) is np.ndarray:
        return True
    return isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)


def _share_memory(a: Any, b: Any) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, 1_000_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:  # nobody writes into such strides on purpose
        return True


def _is_same_view(a: Any, b: Any) -> bool:
    start, other_start = (each.__array_interface__["data"][0] for each in (a, b))
    if a.dtype != b.dtype or start != other_start:
        return False
    axes = zip(a.shape, a.strides, b.strides, strict=True)
    return all(size < 2 or step == other for size, step, other in axes)


NUMPY_ARRAYS = ArrayType(
    "numpy.ndarray",
    "convert it with numpy.asarray(...)",
    _is_ndarray,
    _share_memory,
    _is_same_view,
)


def check_array(
    op: str, name: str, value: Any, arrays: ArrayType, advice: str | None = None
) -> None:
    """Raise TypeError, which ends with `advice`, for what is not an array of a library."""
    if not arrays.is_instance(value):
        raise TypeError(
            f"{op}: {name} must be a {arrays.name}, got {type_name(value)}; "
            f"{advice or arrays.conversion}"
        )


def check_ndarray(op: str, name: str, value: Any) -> None:
    """Raise TypeError for what is not an array of NumPy."""
    check_array(op, name, value, NUMPY_ARRAYS)


def check_values(
    op: str,
    kinds: Mapping[str, ParameterKind],
    values: dict[str, Any],
    arrays: ArrayType = NUMPY_ARRAYS,
) -> None:
    """Check every argument of a call and bring the scalars to Python types, in place.

    Raises
    ------
    TypeError
        For a value of the wrong type, an unsupported dtype, or one that does not go with x's.
    ValueError
        For a wrong shape or a value out of range.
    """
    first = next(iter(kinds))
    partners: dict[str, str] = {}
    for name, kind in kinds.items():
        value = values[name]
        if not kind.is_array:
            values[name] = _SCALARS[kind.role](op, name, kind, value)
        elif value is not None or not kind.optional:
            check_array(op, name, value, arrays)
            if name == first:
                _check_first(op, name, kind, value)
            else:
                _check_dtype(op, values, first, name, kind, partners)
                _check_shape(op, first, values[first], name, kind, value)


def check_outputs(
    op: str,
    results_like: tuple[str, ...],
    kinds: Mapping[str, ParameterKind],
    values: Mapping[str, Any],
    out: Any,
    arrays: ArrayType = NUMPY_ARRAYS,
) -> tuple[Any, ...]:
    """Return the arrays that take the results: those of `out`, checked, or new ones of NumPy.

    `results_like` names, for each result, the argument whose shape and dtype it has.

    Raises
    ------
    TypeError, ValueError
        If one of them cannot take a result, or overlaps what it must not.
    """
    count = len(results_like)
    if out is None:
        return tuple(np.empty(values[name].shape, values[name].dtype) for name in results_like)
    names = output_names(count)
    outputs = (out,) if count == 1 else out
    if count > 1 and (not isinstance(outputs, tuple) or len(outputs) != count):
        given = f"a tuple of {len(out)}" if isinstance(out, tuple) else type_name(out)
        raise TypeError(f"{op}: out must be a tuple of {count} arrays, got {given}")
    for name, output, like in zip(names, outputs, results_like, strict=True):
        # An array converted for the call would take the result and be lost: none is suggested.
        check_array(op, name, output, arrays, "give an array that takes the result")
        _check_output(op, name, output, like, values[like])
        _check_overlap(op, name, output, kinds, values, arrays)
    for (one, first), (other, second) in combinations(zip(names, outputs, strict=True), 2):
        if arrays.share_memory(first, second):
            raise ValueError(f"{op}: {one} and {other} overlap; give separate arrays")
    return tuple(outputs)


def output_names(count: int) -> list[str]:
    """Return what messages call the arrays of `out`."""
    return ["out"] if count == 1 else [f"out[{index}]" for index in range(count)]


def _check_first(op: str, name: str, kind: ParameterKind, x: Any) -> None:
    dtype_name(op, name, x)
    if kind.role == "rows" and x.ndim == 0:
        raise ValueError(
            f"{op}: {name} has shape (), expected at least one axis; use {name}.reshape(1)"
        )


def _check_dtype(
    op: str,
    values: Mapping[str, Any],
    first: str,
    name: str,
    kind: ParameterKind,
    partners: dict[str, str],
) -> None:
    """Check the dtype of one array against those before it.

    Arrays that may be float32 share their dtype with those of the same role, a bias with its weight
    and a sine with its cosine: `partners` keeps the first of each role.
    """
    given, x = values[name].dtype, values[first]
    like = partners.setdefault(kind.role, name) if kind.wide else first
    may_be_float32 = like == name and is_half(x.dtype)
    if like == name:
        like = first
    if given == values[like].dtype or (may_be_float32 and given == np.float32):
        return
    found = dtype_name(op, name, values[name])
    expected = f"{values[like].dtype} like {like}" + (", or float32" if may_be_float32 else "")
    raise TypeError(
        f"{op}: {name} has dtype {found}, expected {expected}; "
        f"convert it with {name}.astype({like}.dtype)"
    )


def _check_shape(op: str, first: str, x: Any, name: str, kind: ParameterKind, value: Any) -> None:
    if kind.is_full:
        if value.shape != x.shape:
            raise ValueError(
                f"{op}: {name} has shape {value.shape}, expected {x.shape} like {first}"
            )
    elif kind.role == "row_vector":
        # (n,) for rows (..., n)
        if value.shape != x.shape[-1:]:
            raise ValueError(
                f"{op}: {name} has shape {value.shape}, expected {x.shape[-1:]} to match the "
                f"last axis of {first} with shape {x.shape}"
            )
    else:
        _check_half_rows(op, first, x, name, value)


def _check_half_rows(op: str, first: str, x: Any, name: str, value: Any) -> None:
    # broadcasts to (..., n/2) for rows (..., n)
    if x.shape[-1] % 2:
        raise ValueError(f"{op}: {first} has shape {x.shape}, expected a last axis of even length")
    target = (*x.shape[:-1], x.shape[-1] // 2)
    if not _broadcasts(tuple(value.shape), target):
        raise ValueError(
            f"{op}: {name} has shape {value.shape}, expected a shape that broadcasts to {target} "
            f"for {first} with shape {x.shape}"
        )


@lru_cache(maxsize=256)
def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    own = (1,) * (len(target) - len(shape)) + shape
    return len(own) == len(target) and all(a in (1, b) for a, b in zip(own, target, strict=True))


def _check_output(op: str, name: str, out: Any, like: str, argument: Any) -> None:
    if out.dtype != argument.dtype:
        raise TypeError(
            f"{op}: {name} has dtype {out.dtype}, expected {argument.dtype} like {like}; "
            f"give an array of dtype {argument.dtype}"
        )
    if out.shape != argument.shape:
        raise ValueError(f"{op}: {name} has shape {out.shape}, expected {argument.shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError(f"{op}: {name} is read-only; give a writable array")
    if not out.flags.c_contiguous and _overlaps_itself(out):
        raise ValueError(
            f"{op}: {name} with strides {out.strides} overlaps itself, expected one place in "
            "memory for each element"
        )


def _check_overlap(
    op: str,
    name: str,
    out: Any,
    kinds: Mapping[str, ParameterKind],
    values: Mapping[str, Any],
    arrays: ArrayType,
) -> None:
    for other, kind in kinds.items():
        value = values[other]
        if not kind.is_array or value is None or (kind.is_full and value is out):
            continue
        if arrays.share_memory(out, value) and not (
            kind.is_full and arrays.is_same_view(out, value)
        ):
            raise ValueError(
                f"{op}: {name} overlaps {other}; expected separate memory"
                + (f", or exactly the same view as {other}" if kind.is_full else "")
            )


def _check_real(op: str, name: str, kind: ParameterKind, value: Any) -> float:
    if type(value) is not float and not _is_real(value):
        raise TypeError(f"{op}: {name} must be a real number, got {type_name(value)}")
    try:
        real = float(value)
    except OverflowError:  # an int that no float can hold
        real = math.inf if value > 0 else -math.inf
    if not math.isfinite(real) or real < kind.minimum:
        expected = "a finite number" + (f" >= {kind.minimum:g}" if kind.minimum == 0 else "")
        raise ValueError(f"{op}: {name} is {real!r}, expected {expected}")
    return real


def _is_real(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        return False
    if isinstance(value, (float, int, np.floating, np.integer)):
        return True
    # A scalar of bfloat16 is none of NumPy's own floating-point types.
    return isinstance(value, np.generic) and value.dtype.name == "bfloat16"


def _check_choice(op: str, name: str, kind: ParameterKind, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{op}: {name} must be a string, got {type_name(value)}")
    if value not in kind.choices:
        expected = " or ".join(map(repr, kind.choices))
        raise ValueError(f"{op}: {name} is {value!r}, expected {expected}")
    return value


def _check_flag(op: str, name: str, kind: ParameterKind, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{op}: {name} must be True or False, got {type_name(value)}")
    return bool(value)


_SCALARS = {"real": _check_real, "choice": _check_choice, "flag": _check_flag}


def _overlaps_itself(array: Any) -> bool:
    """Return whether two elements may share memory, by the rule that nested strides suffice."""
    extent = int(array.itemsize)
    axes = [(abs(step), size) for size, step in zip(array.shape, array.strides, strict=True)]
    for step, size in sorted(axis for axis in axes if axis[1] > 1):
        if step < extent:
            return bool(array.size)
        extent += step * (size - 1)
    return False
