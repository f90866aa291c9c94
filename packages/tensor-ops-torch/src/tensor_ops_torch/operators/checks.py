"""Checks of shapes, dtypes and devices where no backend sees the tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tensor_ops.extension import Op
from tensor_ops_torch.operators.tensors import HALF, array_names, dtype_name

__all__ = ["check_tensors"]


def check_tensors(op: Op, args: Sequence[Any]) -> None:
    """Check shapes, dtypes and devices as the backends do, where none of them sees the tensors.

    Raises TypeError or ValueError.
    """
    x, first = args[0], op.first
    given = {
        name: value for name, value in zip(array_names(op), args, strict=False) if value is not None
    }
    dtype_name(op.name, first, x)
    rows = any(op.kinds[name].role != "elements" for name in array_names(op))
    if rows and x.ndim == 0:
        raise ValueError(f"{op.name}: {first} has shape (), expected at least one axis")
    for name, value in given.items():
        if value.layout is not torch.strided:
            raise TypeError(
                f"{op.name}: {name} has layout {value.layout}, expected {torch.strided}; "
                f"convert it with {name}.to_dense()"
            )
        _check_dtype(op, name, given)
        if value.device != x.device:
            raise ValueError(
                f"{op.name}: {name} is on {value.device}, expected {x.device} like {first}"
            )
        expected = _expected_shape(op, name, x)
        fits = value.shape == expected
        if op.kinds[name].role == "half_rows":
            fits = _broadcasts(value.shape, expected)
        if not fits:
            raise ValueError(
                f"{op.name}: {name} has shape {tuple(value.shape)}, expected {tuple(expected)} "
                f"for {first} with shape {tuple(x.shape)}"
            )


def _check_dtype(op: Op, name: str, given: Mapping[str, Tensor]) -> None:
    """Check the dtype of one tensor against x's, or against its partner's, as tensor_ops does."""
    x, value, kind = given[op.first], given[name], op.kinds[name]
    like, alternative = op.first, ""
    if kind.wide:
        # Wide arguments of one role, as a weight and its bias, share their dtype.
        same = ((each, op.kinds[each]) for each in given)
        leader = next(each for each, of in same if of.wide and of.role == kind.role)
        if leader != name:
            like = leader
        elif x.dtype in HALF:
            alternative = f", or {torch.float32}"
    expected = given[like].dtype
    if value.dtype == expected or (alternative and value.dtype is torch.float32):
        return
    raise TypeError(
        f"{op.name}: {name} has dtype {value.dtype}, expected {expected} like {like}{alternative}; "
        f"convert it with {name}.to({like}.dtype)"
    )


def _expected_shape(op: Op, name: str, x: Tensor) -> torch.Size:
    role = op.kinds[name].role
    if role == "row_vector":
        return x.shape[-1:]
    if role == "half_rows":
        if x.shape[-1] % 2:
            raise ValueError(
                f"{op.name}: {op.first} has shape {tuple(x.shape)}, expected a last axis of even "
                "length"
            )
        return torch.Size((*x.shape[:-1], x.shape[-1] // 2))
    return x.shape


def _broadcasts(shape: torch.Size, target: torch.Size) -> bool:
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, other) for size, other in pairs)
