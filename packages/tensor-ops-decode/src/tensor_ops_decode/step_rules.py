"""What must hold of the arrays that a caller fills for a step, and of the tensors of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tensor_ops_decode.node_kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["check_step", "check_steps", "check_tensors", "vocabulary"]

_LARGEST = np.finfo(np.float32).max


def check_tensors(program: Program, tensors: Mapping[str, Array], names: Iterable[str]) -> None:
    """Raise a ValueError unless the tensors of these names are given, with the bytes they need."""
    for name in names:
        if name not in tensors:
            raise ValueError(f"tensor {name!r} is missing")
        tensor, given = program.tensors[name], tensors[name]
        expected = FORMATS[tensor.type].row_bytes(tensor.shape[-1])
        if len(tensor.shape) == 2:
            expected *= tensor.shape[0]
        if given.nbytes != expected or not given.flags.c_contiguous:
            raise ValueError(
                f"tensor {name!r} must be {expected} contiguous bytes ({tensor.type}, shape "
                f"{tensor.shape}), got {given.nbytes} bytes of {given.dtype}, shape {given.shape}"
            )


def check_step(
    program: Program, arrays: Mapping[str, Array], num_tokens: int, num_selected: int
) -> None:
    """Raise a ValueError unless the arrays hold a step of so many tokens."""
    limits = program.limits
    for name, number, most in (
        ("num_tokens", num_tokens, limits.max_tokens),
        ("num_selected", num_selected, min(num_tokens, limits.max_selected)),
    ):
        if not (name == "num_selected" and number == 0) and not 0 < number <= most:
            raise ValueError(f"{name} must be from 1 to {most}, got {number}")
    tokens, positions, slots = (
        arrays[name][:num_tokens] for name in ("tokens", "positions", "slots")
    )
    for what, given, end in (
        ("token", tokens, vocabulary(program)),
        ("position", positions, limits.max_seq_length),
        ("slot", slots, limits.max_requests),
        ("selected index", arrays["selected"][:num_selected], num_tokens),
    ):
        bad = given[(given < 0) | (given >= end)]
        if bad.size:
            raise ValueError(f"each {what} must be from 0 to {end - 1}, got {bad[0]}")
    if np.any(np.diff(arrays["selected"][:num_selected]) <= 0):
        raise ValueError("the selected indices must ascend")
    for slot in np.unique(slots):
        if np.any(np.diff(positions[slots == slot]) != 1):
            raise ValueError(f"the positions of slot {slot} must ascend one by one")
        _check_sampling(program, arrays, int(slot))
    for slot, position in zip(slots, positions, strict=True):
        _check_pages(program, arrays, slot, position)


def check_steps(
    program: Program,
    arrays: Mapping[str, Array],
    num_tokens: int,
    num_steps: int,
    output: str,
    end_tokens: Sequence[Sequence[int]],
) -> None:
    """Raise a ValueError unless the arrays hold the first of so many steps in a row."""
    limits = program.limits
    check_step(program, arrays, num_tokens, num_tokens)
    value = program.values[output] if output in program.outputs else None
    if value is None or (value.columns, value.dtype) != (1, "int32"):
        raise ValueError(f"{output!r} is no output of the program with one int32 in a row")
    if len(end_tokens) != num_tokens:
        raise ValueError(
            f"end_tokens must have a list for each of {num_tokens} tokens, got {len(end_tokens)}"
        )
    if not 1 <= num_steps <= limits.max_seq_length:
        raise ValueError(f"num_steps must be from 1 to {limits.max_seq_length}, got {num_steps}")
    slots = arrays["slots"][:num_tokens]
    if len(np.unique(slots)) != num_tokens:
        raise ValueError(f"each slot must have one token, got the slots {slots.tolist()}")
    for slot, position in zip(slots, arrays["positions"][:num_tokens], strict=True):
        last = int(position) + num_steps - 1
        if last >= limits.max_seq_length:
            raise ValueError(
                f"positions must stay below {limits.max_seq_length}, "
                f"but slot {slot} comes to {last}"
            )
        _check_pages(program, arrays, slot, last)


def _check_pages(program: Program, arrays: Mapping[str, Array], slot: int, position: int) -> None:
    limits = program.limits
    used = arrays["page_table"][slot, : position // limits.page_size + 1]
    if np.any((used < 0) | (used >= limits.num_pages)):
        raise ValueError(
            f"the page table of slot {slot} must name pages from 0 to {limits.num_pages - 1}, "
            f"got {used.tolist()}"
        )


def _check_sampling(program: Program, arrays: Mapping[str, Array], slot: int) -> None:
    if not any(node.kind == "sample" for node in program.nodes):
        return
    for name, most, expected in (
        ("temperature", _LARGEST, "finite and at least 0"),
        ("top_p", 1, "from 0 to 1"),
        ("min_p", 1, "from 0 to 1"),
        ("top_k", _LARGEST, "at least 0"),
    ):
        given = arrays[name][slot]
        if not 0 <= given <= most:
            raise ValueError(f"{name}[{slot}] must be {expected}, got {given}")
    _check_edits(program, arrays, slot)


def _check_edits(program: Program, arrays: Mapping[str, Array], slot: int) -> None:
    sampled = [node.inputs["x"] for node in program.nodes if node.kind == "sample"]
    number, most = arrays["num_edits"][slot], program.limits.edits_per_request
    if not 0 <= number <= most:
        raise ValueError(f"num_edits of slot {slot} must be from 0 to {most}, got {number}")
    end = min(program.values[name].columns for name in sampled)
    tokens, biases, penalties = (
        arrays[name][slot, :number] for name in ("edited_tokens", "edit_biases", "edit_penalties")
    )
    for name, given, is_valid, expected in (
        ("edited_tokens", tokens, (tokens >= 0) & (tokens < end), f"from 0 to {end - 1}"),
        ("edit_biases", biases, biases < np.inf, "numbers or minus infinity"),
        ("edit_penalties", penalties, (penalties > 0) & (penalties < np.inf), "finite and above 0"),
    ):
        if not np.all(is_valid):
            wrong = given[~is_valid][0]
            raise ValueError(f"{name} of slot {slot} must be {expected}, got {wrong}")


def vocabulary(program: Program) -> int:
    """Return the smallest number of rows of the tables that tokens are looked up in."""
    tables = [
        program.tensors[node.weights["weight"][0]].shape[0]
        for node in program.nodes
        if node.inputs.get("tokens") == "tokens"
    ]
    return min(tables, default=2**31)
