"""The operators under `torch.vmap` and autocast."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from tensor_ops.extension import Op
from tensor_ops_torch.operators.tensors import array_names

__all__ = ["autocast_kernel", "vmap_rule"]


def vmap_rule(op: Op, operator: Callable[..., Any]) -> Callable[..., Any]:
    names = array_names(op)
    # Each result of its own call: rows that are mapped may not be added up together.
    has_sums = any(not op.kinds[like].is_full for like in op.results_like)

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any, **scalars: Any) -> Any:
        """Make the mapped axis one more axis of rows, or go along it where a row vector has it."""
        size, tensors = info.batch_size, list(args[: len(names)])
        dims = list(in_dims[: len(names)])
        of_vectors = has_sums or any(
            dim is not None and op.kinds[name].role == "row_vector"
            for name, dim in zip(names, dims, strict=False)
        )
        if of_vectors:
            parts = [
                operator(
                    *(
                        each if dim is None else each.select(dim, index)
                        for each, dim in zip(tensors, dims, strict=True)
                    ),
                    *args[len(tensors) :],
                    **scalars,
                )
                for index in range(size)
            ]
            if op.outputs == 1:
                return torch.stack(parts), 0
            return tuple(map(torch.stack, zip(*parts, strict=True))), (0,) * op.outputs
        rank = max(
            each.ndim - (dim is not None)
            for each, dim in zip(tensors, dims, strict=True)
            if each is not None
        )
        for index, (name, dim) in enumerate(zip(names, dims, strict=False)):
            tensor, role = tensors[index], op.kinds[name].role
            if dim is not None:
                moved = tensor.movedim(dim, 0)
                # An axis that broadcasts from the right must not meet the mapped one.
                ones = (1,) * (rank - moved.ndim + 1)
                tensors[index] = moved.reshape(size, *ones, *moved.shape[1:])
            elif tensor is not None and op.kinds[name].is_full:
                tensors[index] = tensor.expand(size, *tensor.shape)
            assert role != "row_vector" or dim is None
        result = operator(*tensors, *args[len(tensors) :], **scalars)
        return result, 0 if op.outputs == 1 else (0,) * op.outputs

    return rule


def autocast_kernel(op: Op, operator: Callable[..., Any], device: str) -> Callable[..., Any]:
    count = len(array_names(op))

    def kernel(*args: Any, **scalars: Any) -> Any:
        """Bring the arrays to the widest of their dtypes: PyTorch's policy "promote"."""
        dtypes = (each.dtype for each in args[:count] if each is not None)
        widest = reduce(torch.promote_types, dtypes)
        arrays = (None if each is None else each.to(widest) for each in args[:count])
        with torch.autocast(device, enabled=False):
            return operator(*arrays, *args[count:], **scalars)

    return kernel
