"""A program whose matrices are quantized on their way from the file."""

import dataclasses

from tensor_ops.extension import warn_caller
from tensor_ops_decode.program.node_slots import matrices_of, tables_of
from tensor_ops_decode.program.program import Program
from tensor_ops_decode.program.records import Tensor
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["quantized_program", "warn_if_nothing_is_quantized"]

_HEAD_TYPE = "q8_0"


def quantized_program(program: Program, name: str | None, head: str | None = None) -> Program:
    """Return a program with its matrices in block types.

    Norms, biases and a table that is only looked up stay as they are, and so do a matrix whose
    columns are no whole blocks, and one by whose results experts are chosen.

    Parameters
    ----------
    program : Program
    name : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"} or None
        What floating-point matrices become; those that are quantized already stay so. The matrix
        of the logits becomes q8_0, for llama.cpp keeps it more exact too (q6_K, beside weights of 4
        bits); where it is the embedding table as well, rows are looked up in the quantized one, as
        in llama.cpp.
    head : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "mxfp4"} or None
        What the matrix of the logits becomes instead, of whatever type it is. Where it is the
        embedding table as well, rows are looked up in what the file has.
    """
    if name is None and head is None:
        return program
    tensors, nodes = dict(program.tensors), list(program.nodes)
    tables = {each for node in nodes for each in tables_of(node)}
    head_type = head or (name and _HEAD_TYPE)
    # The last product computes the logits, as does the last one of a draft.
    products = [i for i, node in enumerate(nodes) if matrices_of(node)]
    of_step = [i for i in products if i < program.num_step_nodes]
    heads = {*of_step[-1:], *products[-1:]}
    chosen_by = {node.inputs["x"] for node in nodes if node.kind == "route"}
    for index, node in enumerate(nodes):
        is_head = index in heads
        if not chosen_by.isdisjoint(node.outputs.values()):
            continue
        wanted, any_type = (head_type, head is not None) if is_head else (name, False)
        weights = dict(node.weights)
        for slot, names in matrices_of(node).items():
            made = [_quantized(tensors[each], wanted, any_type=any_type) for each in names]
            if any_type:
                weights[slot] = tuple(f"{n}, {head}" if n in tables else n for n in names)
            tensors.update(zip(weights[slot], made, strict=True))
        nodes[index] = dataclasses.replace(node, weights=weights)
    return dataclasses.replace(program, tensors=tensors, nodes=tuple(nodes))


def warn_if_nothing_is_quantized(program: Program, name: str | None, head: str | None) -> None:
    """Warn if matrices in floating point were to be quantized and none was, for lack of blocks."""
    tensors = program.tensors.values()
    if any(each.source.get("transform", ())[-1:] == [f"quantize:{each.type}"] for each in tensors):
        return
    for argument, given in (("quantize", name), ("quantize_head", head)):
        if given is not None and any(_is_odd(tensor, given) for tensor in tensors):
            warn_caller(
                f"{argument}={given!r} quantizes nothing: no matrix of the model has rows of whole "
                f"blocks of {FORMATS[given].block_size} numbers; leave it out",
                UserWarning,
            )


def _is_odd(tensor: Tensor, name: str) -> bool:
    is_matrix = len(tensor.shape) > 1 and "file" in tensor.source
    is_whole = tensor.shape[-1] % FORMATS[name].block_size == 0
    return is_matrix and FORMATS[tensor.type].is_float and not is_whole


def _quantized(tensor: Tensor, name: str | None, *, any_type: bool) -> Tensor:
    if name is None or tensor.type == name or "file" not in tensor.source:
        return tensor
    is_matrix = len(tensor.shape) > 1 and tensor.shape[-1] % FORMATS[name].block_size == 0
    if not is_matrix or not (any_type or FORMATS[tensor.type].is_float):
        return tensor
    transform = [*tensor.source["transform"], f"quantize:{name}"]
    return dataclasses.replace(tensor, type=name, source={**tensor.source, "transform": transform})
