"""The rules of one node: whether its values, weights, attributes and cache fit together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kinds.kind import Input, KeysAndValues, Kind, Weight
from tensor_ops_decode.kinds.sizes import DimensionVariables
from tensor_ops_decode.program.records import Cache, Limits, State, Value

__all__ = ["TOKENS", "NodeArguments", "InferredValue", "bound_of", "check_names", "outputs_of"]

_MANY_WORDS = {False: "one tensor", True: "one or more tensors"}


@dataclass(frozen=True)
class InferredValue:
    """A value as it is known where a node reads it.

    All of its integers, from 0 on, are below `below`; None if nobody says so.
    """

    name: str
    value: Value
    below: int | None = None


#: The value that is predefined. Before each step its numbers are checked to be below all bounds.
TOKENS = InferredValue("tokens", Value("tokens", 1, "int32"))


@dataclass(frozen=True)
class NodeArguments:
    """Arguments of a node, by the slots of its kind."""

    where: str  # the node in words, for errors
    limits: Limits
    inputs: Mapping[str, InferredValue]
    weights: Mapping[str, Sequence[tuple[int, ...]]]  # the shapes of the tensors
    attributes: Mapping[str, Any]
    cache: Cache | State | None  # that of the attribute ``cache``
    outputs: Mapping[str, str]  # the names of values


def outputs_of(kind: Kind, given: NodeArguments) -> list[InferredValue]:
    """Return the values that a node writes, in the order of its slots.

    Raises ProgramError if what is given does not fit together; it names the node, the slot, what
    was given and what is expected.
    """
    rows = _rows_of(kind, given)
    letters = _letters_of(kind, given)
    for each in kind.inputs:
        if each.below:
            end = letters.value(each.below)
            _check_bound(given.where, each, given.inputs[each.name], end)
    check_names(given.where, "output", {slot.name: False for slot in kind.outputs}, given.outputs)
    return [
        InferredValue(
            given.outputs[slot.name],
            Value(rows, letters.value(slot.columns), slot.dtype),
            letters.value(slot.below) if slot.below else None,
        )
        for slot in kind.outputs
    ]


def bound_of(kind: Kind, given: NodeArguments, slot: Input) -> int:
    """Return what the integers of an input must be below, of a node that fits together."""
    return _letters_of(kind, given).value(slot.below)


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


def _rows_of(kind: Kind, given: NodeArguments) -> str:
    """Return which rows the outputs have."""
    where, inputs = given.where, given.inputs
    check_names(where, "input", {slot.name: False for slot in kind.inputs}, inputs)
    for slot in kind.inputs:
        dtype = inputs[slot.name].value.dtype
        if dtype != slot.dtype:
            raise ProgramError(f"{where}: {slot.name} must be {slot.dtype}, got {dtype}")
    rows = {known.value.rows for known in inputs.values()}
    if len(rows) != 1:
        raise ProgramError(f"{where}: its inputs must all have tokens or all have selected rows")
    if (kind.selects or kind.writes_cache) and rows != {"tokens"}:
        raise ProgramError(f"{where}: its input must have a row for each token, not selected rows")
    return "selected" if kind.selects else rows.pop()


def _letters_of(kind: Kind, given: NodeArguments) -> DimensionVariables:
    """Return what the letters of a node stand for."""
    where = given.where
    check_names(where, "weight", {slot.name: slot.optional for slot in kind.weights}, given.weights)
    known = {each.name: False for each in kind.attributes}
    if kind.cache is not None:
        known["cache"] = False
    check_names(where, "attribute", known, given.attributes)
    letters = DimensionVariables(where, given.limits.max_seq_length)
    for each in kind.attributes:
        each.check(where, given.attributes[each.name])
        if each.letter:
            letters.match(each.letter, given.attributes[each.name], each.name)
    _check_relations(kind, letters)
    _match_cache(kind, given, letters)
    for slot in kind.inputs:
        columns = given.inputs[slot.name].value.columns
        letters.match(slot.columns, columns, f"columns of {slot.name}")
    for weight in kind.weights:
        if weight.name in given.weights:
            _match_weight(kind, weight, given, letters)
    for names in kind.together:
        if len({name in given.weights for name in names}) > 1:
            raise ProgramError(f"{where}: {' and '.join(names)} must all be given, or none")
    _check_relations(kind, letters)
    return letters


def _check_relations(kind: Kind, letters: DimensionVariables) -> None:
    for relation in kind.relations:
        letters.require(relation)


def _match_cache(kind: Kind, given: NodeArguments, letters: DimensionVariables) -> None:
    if kind.cache is None:
        return
    expected = Cache if isinstance(kind.cache, KeysAndValues) else State
    if not isinstance(given.cache, expected):
        what = "keys and values" if expected is Cache else "a state"
        raise ProgramError(f"{given.where}: its cache must keep {what}, got {given.cache}")
    for (size, what), number in zip(kind.cache.sizes, given.cache.sizes, strict=True):
        letters.match(size, number, what)


def _match_weight(
    kind: Kind, slot: Weight, given: NodeArguments, letters: DimensionVariables
) -> None:
    """Check the tensors of a slot, and match the shape of all, one behind the other."""
    where, axis = given.where, slot.axis
    found = given.weights[slot.name]
    if not found or (len(found) > 1 and not slot.many):
        raise ProgramError(
            f"{where}: {slot.name} must be {_MANY_WORDS[slot.many]}, got {len(found)}"
        )
    shapes = _shapes_of(slot, given, letters)
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(shapes[0]) != slot.dimensions or len(others) > 1:
        expected = f"{slot.dimensions} dimensions" + " and equal columns" * (len(shapes) > 1)
        if axis:
            expected += ", and as many matrices"
        raise ProgramError(f"{where}: {slot.name} must have {expected}, got {found}")
    if slot.of:
        (of,) = (each for each in kind.weights if each.name == slot.of)
        matrices = _shapes_of(of, given, letters) if slot.of in given.weights else ()
        if [shape[axis] for shape in shapes] != [shape[axis] for shape in matrices]:
            raise ProgramError(
                f"{where}: each {slot.name} must be as long as its matrix of {slot.of} has rows, "
                f"got {shapes} for {matrices}"
            )
    joined = list(shapes[0])
    joined[axis] = sum(shape[axis] for shape in shapes)
    for (size, what), number in zip(slot.sizes, joined, strict=True):
        letters.match(size, number, what)


def _shapes_of(
    slot: Weight, given: NodeArguments, letters: DimensionVariables
) -> Sequence[tuple[int, ...]]:
    """Return the shapes of a slot's tensors, of stacks those of whole ones."""
    shapes = given.weights[slot.name]
    known = letters.knows(slot.planes)
    if slot.form != "stack" or any(len(shape) < 3 - known for shape in shapes):
        return shapes
    count = letters.value(slot.planes) if known else math.prod(shapes[0][:-2])
    stacks: list[tuple[int, ...]] = []
    left = 0  # matrices that the last stack lacks
    for shape in shapes:
        planes = math.prod(shape[:-2])
        if left == 0:
            stacks.append((count, *shape[-2:]))
            left = count
        if planes not in (1, count) or planes > left or shape[-2:] != stacks[-1][1:]:
            break
        left -= planes
    else:
        if left == 0:
            return stacks
    raise ProgramError(
        f"{given.where}: {slot.name} must be stacks of {count} matrices of one size, each as one "
        f"tensor or as matrices one after another, got {list(shapes)}"
    )


def _check_bound(where: str, slot: Input, known: InferredValue, end: int) -> None:
    """Raise a ProgramError unless the integers of a value are stated to be below a number."""
    if known.name == TOKENS.name or (known.below is not None and known.below <= end):
        return
    stated = "of which nothing is stated" if known.below is None else f"below {known.below}"
    raise ProgramError(
        f"{where}: {slot.name} must be the value 'tokens', got {known.name!r}, {stated}; another "
        f"must be stated to be below {end} by the node that writes it"
    )
