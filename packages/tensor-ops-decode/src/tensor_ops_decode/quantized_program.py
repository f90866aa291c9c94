"""A program whose matrices are quantized on their way from the file."""

from __future__ import annotations

import dataclasses

from tensor_ops_decode.program import Program
from tensor_ops_decode.program_records import Node, Tensor
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.transforms import QUANTIZED_TYPES

__all__ = ["quantized_program"]

_HEAD_TYPE = "q8_0"


def quantized_program(program: Program, name: str) -> Program:
    """Return a program with its floating-point matrices in a block type.

    Norms, biases and a table that is only looked up stay as they are, and so does a matrix that is
    quantized already or whose columns are no whole blocks. The matrix of the logits is q8_0
    whatever the type, for llama.cpp keeps it more exact too (q6_K, beside weights of 4 bits); where
    it is the embedding table as well, rows are looked up in the quantized one, as in llama.cpp.

    Parameters
    ----------
    program : Program
    name : {"q4_0", "q4_1", "q8_0"}

    Raises
    ------
    ValueError
        If matrices cannot be quantized to that type.
    """
    if name not in QUANTIZED_TYPES:
        raise ValueError(f"quantize must be one of {', '.join(QUANTIZED_TYPES)}, got {name!r}")
    tensors = dict(program.tensors)
    for node in program.nodes:
        if node.kind == "embed":
            continue
        wanted = _HEAD_TYPE if _has_selected_rows(program, node) else name
        for each in node.weights.get("weight", ()):
            tensors[each] = _quantized(tensors[each], wanted)
    return dataclasses.replace(program, tensors=tensors)


def _has_selected_rows(program: Program, node: Node) -> bool:
    # Only logits are computed for the selected tokens.
    return program.values[node.outputs["output"]].rows == "selected"


def _quantized(tensor: Tensor, name: str) -> Tensor:
    is_matrix = len(tensor.shape) == 2 and tensor.shape[-1] % FORMATS[name].block_size == 0
    if not is_matrix or not FORMATS[tensor.type].is_float or "file" not in tensor.source:
        return tensor
    transform = [*tensor.source["transform"], f"quantize:{name}"]
    return dataclasses.replace(tensor, type=name, source={**tensor.source, "transform": transform})
