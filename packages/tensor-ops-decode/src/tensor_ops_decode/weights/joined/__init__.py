"""Quantized tensors that a folder has as several, each put together when it is opened."""

from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.weights.joined import f8_e4m3, int4, mxfp4
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.tensor import Place, TensorPlace

__all__ = ["with_parts_joined"]


def with_parts_joined(
    tensors: Mapping[str, TensorPlace], quantization: Mapping[str, Any]
) -> dict[str, Place]:
    """Return tensors with the parts of each quantized one as one, under the name that it is for.

    `quantization` is what config.json says of how they were quantized.
    """
    found = [
        *mxfp4.tensors_in(tensors),
        *f8_e4m3.tensors_in(tensors, quantization),
        *int4.tensors_in(tensors, quantization),
    ]
    parts = {name for tensor in found for name in tensor.names_of_parts}
    joined: dict[str, Place] = {name: place for name, place in tensors.items() if name not in parts}
    for tensor in found:
        if tensor.name in joined:
            raise FileFormatError(
                f"{tensor.file.path}: there is a tensor {tensor.name!r} beside "
                f"{', '.join(tensor.names_of_parts)}, which are it too; expected one of both"
            )
        joined[tensor.name] = tensor
    return joined
