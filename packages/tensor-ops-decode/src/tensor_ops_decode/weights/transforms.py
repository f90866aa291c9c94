"""Changes of a tensor on its way from a file to an executor, named in a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.tensor import Tensor

__all__ = ["QUANTIZED_TYPES", "TRANSFORMS", "apply_transforms"]

QUANTIZED_TYPES = tuple(name for name, form in FORMATS.items() if form.quantize_blocks)
_QUANTIZE = "quantize:"


def apply_transforms(tensor: Tensor, transforms: Sequence[str]) -> Tensor:
    """Return a tensor with transforms applied, in order.

    Parameters
    ----------
    tensor : Tensor
        Of a float type, unless there are no transforms or it is to be quantized.
    transforms : sequence of str
        ``"transpose"`` swaps rows and columns. ``"plus_one"`` adds one to each value, in float32,
        and makes a tensor of type f32. ``"quantize:q8_0"`` and the like make one of that type.

    Returns
    -------
    Tensor
        The one given if there are no transforms, else one in memory of its own.

    Raises
    ------
    ValueError
        If a transform is unknown, or does not apply to this tensor.

    Examples
    --------
    >>> data = np.zeros((1, 8), np.uint8)
    >>> tensor = Tensor("norm", "f32", (2,), data, "model.gguf")
    >>> apply_transforms(tensor, ["plus_one"]).values()
    array([1., 1.], dtype=float32)
    """
    for name in transforms:
        if name not in TRANSFORMS:
            raise ValueError(f"transform {name!r} is unknown; expected " + ", ".join(TRANSFORMS))
        if not tensor.format.is_float and not name.startswith(_QUANTIZE):
            raise ValueError(
                f"{tensor.file}: tensor {tensor.name!r} is of type {tensor.type}, to which "
                f"{name!r} does not apply; expected f32, f16 or bf16"
            )
        tensor = TRANSFORMS[name](tensor)
    return tensor


def _transpose(tensor: Tensor) -> Tensor:
    if len(tensor.shape) != 2:
        raise ValueError(
            f"{tensor.file}: tensor {tensor.name!r} of shape {tensor.shape} cannot be transposed; "
            "expected two dimensions"
        )
    elements = tensor.data.view(f"V{tensor.format.block_bytes}")
    data = np.ascontiguousarray(elements.T).view(np.uint8)
    return dataclasses.replace(tensor, shape=tensor.shape[::-1], data=data)


def _plus_one(tensor: Tensor) -> Tensor:
    values = tensor.values() + np.float32(1)
    data = values.astype("<f4", copy=False).reshape(len(tensor.data), -1).view(np.uint8)
    return dataclasses.replace(tensor, type="f32", data=data)


def _quantize_to(name: str) -> Callable[[Tensor], Tensor]:
    def quantize(tensor: Tensor) -> Tensor:
        data = FORMATS[name].quantize(tensor.data, tensor.format, tensor.shape[-1])
        return dataclasses.replace(tensor, type=name, data=data)

    return quantize


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "transpose": _transpose,
    "plus_one": _plus_one,
    **{_QUANTIZE + name: _quantize_to(name) for name in QUANTIZED_TYPES},
}
