"""Tensors as the arrays that backends take: the same memory, without autograd."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensor_ops.arguments import DTYPES

__all__ = ["DTYPE_NAMES", "as_numpy", "dtype_name"]

DTYPE_NAMES = {getattr(torch, name): name for name in DTYPES}


def dtype_name(op: str, argument: str, tensor: Tensor) -> str:
    """Return the name of a supported dtype.

    Raises
    ------
    TypeError
        Naming the dtypes that are supported.
    """
    name = DTYPE_NAMES.get(tensor.dtype)
    if name is None:
        expected = ", ".join(map(str, DTYPE_NAMES))
        raise TypeError(
            f"{op}: {argument} has dtype {tensor.dtype}, expected one of {expected}; "
            f"convert it with {argument}.to(...)"
        )
    return name


def as_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a NumPy array over the memory of a CPU tensor."""
    bare = tensor.detach()
    if bare.dtype is torch.bfloat16:
        # NumPy's own types have no bfloat16; the same bits travel as int16.
        return bare.view(torch.int16).numpy().view(DTYPES["bfloat16"])
    return bare.numpy()
