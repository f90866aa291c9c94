"""The rules of a program: what of it must fit together.

Tested by tests/decode/programs/test_wrong_programs.py.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from tensor_ops_decode.arguments import is_number
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.cache_types import CACHE_DTYPES
from tensor_ops_decode.kinds.sizes import MOST_SIZE
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_rules import TOKENS, InferredValue, NodeArguments, outputs_of
from tensor_ops_decode.program.records import (
    STEP_ARRAYS,
    Cache,
    Draft,
    Limits,
    Node,
    Parts,
    State,
    Tensor,
)
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.transforms import TRANSFORMS, find_transform, is_cut

__all__ = ["check_program", "given_to"]

# No size in bytes is larger, so that sums of some are far from 64 bits.
_MOST_BYTES = 2**48
_ROWS = ("tokens", "selected")


def check_program(program: Parts, inferred: Mapping[str, InferredValue] | None = None) -> None:
    """Raise a ProgramError if something does not fit together.

    Parameters
    ----------
    program : Parts
    inferred : mapping, optional
        All values by name, if each node is known to fit what was before it.
    """
    for field in fields(Limits):
        least = 1 if field.default is MISSING else 0
        _check_size(f"limits: {field.name}", getattr(program.limits, field.name), least)
    for name, tensor in program.tensors.items():
        _check_tensor(f"tensor {name!r}", tensor)
    for name, cache in program.caches.items():
        _check_cache(f"cache {name!r}", cache, program.limits)
    for name, value in program.values.items():
        where = f"value {name!r}"
        _check_size(f"{where}: columns", value.columns)
        _check_choice(f"{where}: rows", value.rows, _ROWS)
        _check_choice(f"{where}: dtype", value.dtype, ("float32", "int32"))
        _check_bytes(where, program.limits.rows(value.rows), value.columns, 4)
    if program.values.get(TOKENS.name, TOKENS.value) != TOKENS.value:
        raise ProgramError("value 'tokens' must be int32, one column, a row for each token")
    written, used = {TOKENS.name: TOKENS}, set[str]()
    for index, node in enumerate(program.nodes):
        where = f"node {index} {node.name!r} ({node.kind})"
        if inferred is None:
            made = _outputs_in(program, where, node, written)
        else:
            made = [inferred[name] for name in node.outputs.values()]
        _check_place(program, where, node, made, written, used)
    for name in program.outputs:
        if name not in written or name == TOKENS.name:
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
    if program.draft is not None:
        _check_draft(program, program.draft)


def _check_draft(program: Parts, draft: Draft) -> None:
    """Check that draft steps have all that they read, and that guesses are tokens."""
    if draft.first_node not in (node.name for node in program.nodes):
        raise ProgramError(f"draft: first_node is {draft.first_node!r}, which is no node")
    first = program.num_step_nodes
    before = {name for node in program.nodes[:first] for name in node.outputs.values()}
    hidden = program.values.get(draft.hidden)
    if hidden is None or draft.hidden not in before.intersection(program.outputs):
        raise ProgramError(f"draft: hidden is {draft.hidden!r}, which is no output of a step")
    if hidden.rows != "tokens":
        raise ProgramError(f"draft: hidden {draft.hidden!r} must have a row for each token")
    for node in program.nodes[first:]:
        for slot, name in node.inputs.items():
            if name in before and name != draft.hidden:
                raise ProgramError(
                    f"draft: {node.name!r} reads {name!r} as {slot}; of the values of a step it "
                    f"may read only hidden, which is {draft.hidden!r}"
                )
    for what, name, columns, dtype in (
        ("next_hidden", draft.next_hidden, hidden.columns, hidden.dtype),
        ("tokens", draft.tokens, 1, "int32"),
    ):
        if name not in program.outputs or name in before:
            raise ProgramError(f"draft: {what} is {name!r}, which is no output of a draft step")
        value = program.values[name]
        if (value.rows, value.columns, value.dtype) != ("selected", columns, dtype):
            raise ProgramError(
                f"draft: {what} {name!r} must have {columns} columns of {dtype} for selected "
                f"tokens, got {value}"
            )


def _outputs_in(
    program: Parts, where: str, node: Node, written: Mapping[str, InferredValue]
) -> list[InferredValue]:
    """Return the values that a node writes, from those that nodes before it have written."""
    given = given_to(where, node, program.limits, program.tensors, program.caches, written)
    if KINDS[node.kind].cache is not None and given.cache is None:
        wanted = node.attributes.get("cache")
        raise ProgramError(f"{where}: cache is {wanted!r}, which is missing")
    return outputs_of(KINDS[node.kind], given)


def _check_place(
    program: Parts,
    where: str,
    node: Node,
    made: Iterable[InferredValue],
    written: dict[str, InferredValue],
    caches: set[str],
) -> None:
    """Check that no node before has the cache and the outputs of one, and note these.

    A node that only reads a cache must come after the one that has it.
    """
    kind = KINDS[node.kind]
    if kind.cache is not None:
        wanted: Any = node.attributes["cache"]
        if kind.writes_cache and wanted in caches:
            raise ProgramError(f"{where}: another node uses the cache {wanted!r}")
        if not kind.writes_cache and wanted not in caches:
            raise ProgramError(f"{where}: no node before writes the cache {wanted!r}")
        caches.add(wanted)
    for output in made:
        if output.name in written:
            raise ProgramError(f"{where}: its output {output.name!r} is written twice")
        declared = program.values.get(output.name)
        if declared is None:
            raise ProgramError(f"{where}: its output {output.name!r} is no value of the program")
        if declared != output.value:
            raise ProgramError(
                f"{where}: its output {output.name!r} is {output.value}, but declared as {declared}"
            )
        written[output.name] = output


def given_to(
    where: str,
    node: Node,
    limits: Limits,
    tensors: Mapping[str, Tensor],
    caches: Mapping[str, Cache | State],
    known: Mapping[str, InferredValue],
    before: str = "node",
) -> NodeArguments:
    """Return what a node is made of, from what is known of the values before it.

    Raises ProgramError if there is no such kind, value or tensor; `before` is what it calls the
    nodes before.
    """
    if node.kind not in KINDS:
        raise ProgramError(f"{where}: no such kind; the kinds are {', '.join(sorted(KINDS))}")
    for slot, name in node.inputs.items():
        if name not in known:
            raise ProgramError(f"{where}: {slot} is {name!r}, which no {before} before writes")
    for slot, names in node.weights.items():
        for name in names:
            if name not in tensors:
                raise ProgramError(f"{where}: {slot} names the tensor {name!r}, which is missing")
    cache = node.attributes.get("cache") if KINDS[node.kind].cache is not None else None
    return NodeArguments(
        where,
        limits,
        {slot: known[name] for slot, name in node.inputs.items()},
        {slot: [tensors[name].shape for name in names] for slot, names in node.weights.items()},
        node.attributes,
        caches.get(cache) if isinstance(cache, str) else None,
        node.outputs,
    )


def _check_cache(where: str, cache: Cache | State, limits: Limits) -> None:
    if isinstance(cache, State):
        for size in cache.sizes:
            _check_size(f"{where}: rows and columns", size)
        _check_bytes(where, limits.num_states, *cache.sizes, 4)
        return
    _check_size(f"{where}: num_kv_heads", cache.num_kv_heads)
    _check_size(f"{where}: head_size", cache.head_size)
    if cache.value_size is not None:
        _check_size(f"{where}: value_size", cache.value_size)
    _check_choice(f"{where}: dtype", cache.dtype, CACHE_DTYPES)


def _check_tensor(where: str, tensor: Tensor) -> None:
    _check_choice(f"{where}: type", tensor.type, tuple(FORMATS))
    if len(tensor.shape) not in (1, 2, 3):
        raise ProgramError(
            f"{where}: shape must have one to three dimensions, got {tensor.shape!r}"
        )
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
    if keys == {"attached", "tensor", "shape", "transform"} and source["attached"] is True:
        _check_part(where, source)
    elif keys == {"file", "tensor", "transform"}:
        are_names = isinstance(source["file"], str) and isinstance(source["tensor"], str)
        transforms = source["transform"]
        are_known = isinstance(transforms, list) and all(
            isinstance(each, str) and find_transform(each) for each in transforms
        )
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
    elif keys == {"rotary", "growth", "length"}:
        _check_choice(f"{where}: rotary", source["rotary"], ("query_scale",))
        _check_size(f"{where}: length", source["length"])
        if not is_number(source["growth"]):
            raise ProgramError(f"{where}: growth must be a finite number")
        if tensor.type != "f32" or tensor.shape[1:] != (1,):
            raise ProgramError(f"{where}: must be f32 with one column")
    else:
        raise ProgramError(
            f"{where}: source must have the keys file, tensor and transform; rotary, frequencies "
            "and factor; rotary, growth and length; or attached, alone or with tensor, shape and "
            f"transform; got {source!r}"
        )


def _check_part(where: str, source: Mapping[str, Any]) -> None:
    """Check the source of a tensor that is a part of an array which the caller hands over."""
    shape, cuts = source["shape"], source["transform"]
    are_cuts = isinstance(cuts, list) and all(
        isinstance(each, str) and is_cut(each) for each in cuts
    )
    if not isinstance(source["tensor"], str) or not isinstance(shape, list) or not are_cuts:
        raise ProgramError(
            f"{where}: source must name an array that is attached, the list of its dimensions and "
            f"a list of planes:a:b, rows:a:b and columns:a:b; got {dict(source)}"
        )
    for size in shape:
        _check_size(f"{where}: each dimension of what is attached", size)


def _check_size(where: str, size: object, least: int = 1) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= MOST_SIZE:
        raise ProgramError(f"{where} must be an integer from {least} to {MOST_SIZE}, got {size!r}")


def _check_bytes(where: str, *factors: int) -> None:
    if math.prod(factors) > _MOST_BYTES:
        product = " x ".join(map(str, factors))
        raise ProgramError(f"{where}: its size in bytes is more than any memory: {product}")


def _check_choice(where: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ProgramError(f"{where} must be {' or '.join(map(repr, choices))}, got {value!r}")
