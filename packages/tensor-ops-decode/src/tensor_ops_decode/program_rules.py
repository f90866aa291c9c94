"""The rules of a program: what of it must fit together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.cache_types import CACHE_DTYPES
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.node_kind import MOST_SIZE, Kind, Shapes, Weight, is_number
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program_records import STEP_ARRAYS, Cache, Limits, Node, Tensor, Value
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.transforms import TRANSFORMS

if TYPE_CHECKING:
    from tensor_ops_decode.program import Program

__all__ = ["check_names", "check_program", "output_of"]

# No size in bytes is larger, so that sums of some are far from 64 bits.
_MOST_BYTES = 2**48
_ROWS = ("tokens", "selected")


def check_program(program: Program) -> None:
    for field in fields(Limits):
        _check_size(f"limits: {field.name}", getattr(program.limits, field.name))
    for name, tensor in program.tensors.items():
        _check_tensor(f"tensor {name!r}", tensor)
    for name, cache in program.caches.items():
        where = f"cache {name!r}"
        _check_size(f"{where}: num_kv_heads", cache.num_kv_heads)
        _check_size(f"{where}: head_size", cache.head_size)
        _check_choice(f"{where}: dtype", cache.dtype, CACHE_DTYPES)
    for name, value in program.values.items():
        where = f"value {name!r}"
        _check_size(f"{where}: columns", value.columns)
        _check_choice(f"{where}: rows", value.rows, _ROWS)
        _check_choice(f"{where}: dtype", value.dtype, ("float32", "int32"))
        _check_bytes(where, program.limits.rows(value.rows), value.columns, 4)
    if "tokens" in program.values and program.values["tokens"] != Value("tokens", 1, "int32"):
        raise ProgramError("value 'tokens' must be int32, one column, a row for each token")
    written, used = {"tokens"}, set[str]()
    for index, node in enumerate(program.nodes):
        _check_node(program, f"node {index} {node.name!r} ({node.kind})", node, written, used)
    for name in program.outputs:
        if name not in written or name == "tokens":
            raise ProgramError(f"outputs: no node writes {name!r}")
        if name in STEP_ARRAYS:
            raise ProgramError(f"outputs: {name!r} is the name of an array of every step")
    if len(set(program.outputs)) != len(program.outputs):
        raise ProgramError("outputs: one is named twice")
    for name in program.values:
        if name not in written:
            raise ProgramError(f"value {name!r} is written by no node")
    if len({node.name for node in program.nodes}) != len(program.nodes):
        raise ProgramError("nodes: two have the same name")


def _check_node(
    program: Program, where: str, node: Node, written: set[str], caches: set[str]
) -> None:
    if node.kind not in KINDS:
        raise ProgramError(f"{where}: no such kind; the kinds are {', '.join(sorted(KINDS))}")
    kind = KINDS[node.kind]
    for slot, name in node.inputs.items():
        if name not in written:
            raise ProgramError(f"{where}: {slot} is {name!r}, which no node before writes")
    for expected in kind.inputs:
        # Only these are checked before a step to be rows of every table.
        name = node.inputs.get(expected.name, "tokens")
        if expected.dtype == "int32" and name != "tokens":
            raise ProgramError(f"{where}: {expected.name} must be the value 'tokens', got {name!r}")
    for slot, names in node.weights.items():
        for name in names:
            if name not in program.tensors:
                raise ProgramError(f"{where}: {slot} names the tensor {name!r}, which is missing")
    cache = None
    if kind.has_cache:
        wanted = node.attributes.get("cache")
        if not isinstance(wanted, str) or wanted not in program.caches:
            raise ProgramError(f"{where}: cache is {wanted!r}, which is missing")
        if wanted in caches:
            raise ProgramError(f"{where}: another node uses the cache {wanted!r}")
        caches.add(wanted)
        cache = program.caches[wanted]
    # What is predefined need not be declared.
    values = {"tokens": Value("tokens", 1, "int32"), **program.values}
    output = output_of(
        where,
        kind,
        {slot: values[name] for slot, name in node.inputs.items()},
        {slot: [program.tensors[n].shape for n in names] for slot, names in node.weights.items()},
        node.attributes,
        cache,
    )
    check_names(where, "output", {"output": False}, node.outputs)
    name = node.outputs["output"]
    if name in written:
        raise ProgramError(f"{where}: its output {name!r} is written twice")
    if name not in program.values:
        raise ProgramError(f"{where}: its output {name!r} is no value of the program")
    if program.values[name] != output:
        raise ProgramError(
            f"{where}: its output {name!r} is {output}, but declared as {program.values[name]}"
        )
    for slot in ("cos", "sin"):
        rows = program.limits.max_seq_length
        for each in node.weights.get(slot, ()):
            if program.tensors[each].shape[0] < rows:
                raise ProgramError(
                    f"{where}: {slot} has {program.tensors[each].shape[0]} rows, fewer than the "
                    f"{rows} positions of limits.max_seq_length"
                )
    written.add(name)


def _check_tensor(where: str, tensor: Tensor) -> None:
    _check_choice(f"{where}: type", tensor.type, tuple(FORMATS))
    if len(tensor.shape) not in (1, 2):
        raise ProgramError(f"{where}: shape must have one or two dimensions, got {tensor.shape!r}")
    for size in tensor.shape:
        _check_size(f"{where}: each dimension", size)
    _check_bytes(where, *tensor.shape, 8)
    block_size = FORMATS[tensor.type].block_size
    if tensor.shape[-1] % block_size:
        raise ProgramError(
            f"{where}: {tensor.type} needs columns that are a multiple of {block_size}, got "
            f"{tensor.shape[-1]}"
        )
    source = tensor.source
    keys = set(source)
    if keys == {"attached"} and source["attached"] is True:
        return
    if keys == {"file", "tensor", "transform"}:
        are_names = isinstance(source["file"], str) and isinstance(source["tensor"], str)
        transforms = source["transform"]
        are_known = isinstance(transforms, list) and set(map(str, transforms)) <= set(TRANSFORMS)
        if not are_names or not are_known:
            raise ProgramError(
                f"{where}: source must name a file, a tensor and a list of transforms out of "
                f"{', '.join(TRANSFORMS)}; got {dict(source)}"
            )
    elif keys == {"rotary", "frequencies", "factor"}:
        _check_choice(f"{where}: rotary", source["rotary"], ("cos", "sin"))
        frequencies = source["frequencies"]
        are_numbers = isinstance(frequencies, list) and all(map(is_number, frequencies))
        if not are_numbers or not is_number(source["factor"]):
            raise ProgramError(f"{where}: frequencies and factor must be finite numbers")
        if tensor.type != "f32" or tensor.shape[1:] != (len(frequencies),):
            raise ProgramError(f"{where}: must be f32 with a column for each frequency")
    else:
        raise ProgramError(
            f"{where}: source must have the keys file, tensor and transform; rotary, frequencies "
            f"and factor; or attached; got {source!r}"
        )


def _joined(
    where: str, slot: Weight, weights: Mapping[str, list[tuple[int, ...]]]
) -> tuple[int, ...] | None:
    """Return the shape of all tensors of a slot, one below the other."""
    shapes = weights.get(slot.name)
    if shapes is None:
        return None
    if not shapes or (len(shapes) > 1 and not slot.many):
        expected = "one or more tensors" if slot.many else "one tensor"
        raise ProgramError(f"{where}: {slot.name} must be {expected}, got {len(shapes)}")
    for shape in shapes:
        if len(shape) != slot.dimensions or shape[1:] != shapes[0][1:]:
            expected = f"{slot.dimensions} dimensions" + " and equal columns" * (len(shapes) > 1)
            raise ProgramError(f"{where}: {slot.name} must have {expected}, got {shapes}")
    if slot.name == "bias" and [s[0] for s in shapes] != [s[0] for s in weights["weight"]]:
        raise ProgramError(
            f"{where}: each bias must be as long as its weight has rows, got {shapes} for "
            f"{weights['weight']}"
        )
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def check_names(
    where: str, what: str, slots: Mapping[str, bool], given: Mapping[str, object]
) -> None:
    """Check that all names of `slots` that are not optional are given, and no others."""
    for name, optional in slots.items():
        if not optional and name not in given:
            raise ProgramError(f"{where}: the {what} {name!r} is missing")
    for name in given:
        if name not in slots:
            expected = f"expected {', '.join(slots)}" if slots else f"it has no {what}s"
            raise ProgramError(f"{where}: unknown {what} {name!r}; {expected}")


def _check_size(where: str, size: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= MOST_SIZE:
        raise ProgramError(f"{where} must be an integer from 1 to {MOST_SIZE}, got {size!r}")


def _check_bytes(where: str, *factors: int) -> None:
    if math.prod(factors) > _MOST_BYTES:
        product = " x ".join(map(str, factors))
        raise ProgramError(f"{where}: its size in bytes is more than any memory: {product}")


def _check_choice(where: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ProgramError(f"{where} must be {' or '.join(map(repr, choices))}, got {value!r}")


def output_of(
    where: str,
    kind: Kind,
    inputs: Mapping[str, Value],
    weights: Mapping[str, list[tuple[int, ...]]],
    attributes: Mapping[str, Any],
    cache: Cache | None,
) -> Value:
    """Return the output that a node has, or raise a ProgramError that names it.

    Parameters
    ----------
    where : str
        The node in words.
    kind : Kind
    inputs : mapping of str to Value
    weights : mapping of str to list of shapes
    attributes : mapping
    cache : Cache or None
        That of the attribute ``cache``.
    """
    slots = {slot.name: slot.optional for slot in kind.inputs}
    check_names(where, "input", slots, inputs)
    for slot in kind.inputs:
        given = inputs.get(slot.name)
        if given is not None and given.dtype != slot.dtype:
            raise ProgramError(f"{where}: {slot.name} must be {slot.dtype}, got {given.dtype}")
    rows = {value.rows for value in inputs.values()}
    if len(rows) != 1:
        raise ProgramError(f"{where}: its inputs must all have tokens or all have selected rows")
    if (kind.selects or kind.has_cache) and rows != {"tokens"}:
        raise ProgramError(f"{where}: its input must have a row for each token, not selected rows")
    check_names(where, "weight", {slot.name: slot.optional for slot in kind.weights}, weights)
    shapes = {slot.name: _joined(where, slot, weights) for slot in kind.weights}
    known = {each.name: False for each in kind.attributes}
    if kind.has_cache:
        known["cache"] = False
    check_names(where, "attribute", known, attributes)
    for each in kind.attributes:
        each.check(where, attributes[each.name])
    columns = kind.columns(
        Shapes(
            where,
            {name: value.columns for name, value in inputs.items()},
            {name: shape for name, shape in shapes.items() if shape is not None},
            attributes,
            None if cache is None else (cache.num_kv_heads, cache.head_size),
        )
    )
    return Value("selected" if kind.selects else rows.pop(), columns, kind.output_dtype)
