"""Rules for the arrays that a caller fills for a step, and for the tensors of a program.

Tested by tests/decode/executors/test_wrong_steps.py, tests/decode/executors/test_wrong_tensors.py
and tests/decode/executors/test_states_of_steps.py.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.kinds.sizes import MOST_SIZE
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.node_rules import TOKENS, InferredValue, bound_of
from tensor_ops_decode.program.node_slots import drawn_from
from tensor_ops_decode.program.program import Program, State, Tensor
from tensor_ops_decode.program.rules import given_to

__all__ = ["check_step", "check_steps", "check_tensor", "check_tensors", "vocabulary"]

_LARGEST = np.finfo(np.float32).max


def check_tensors(program: Program, tensors: Mapping[str, Array], names: Iterable[str]) -> None:
    """Raise a ValueError unless the tensors of these names are given, with the bytes they need."""
    for name in names:
        if name not in tensors:
            raise ValueError(f"tensor {name!r} is missing")
        check_tensor(name, program.tensors[name], tensors[name])


def check_tensor(name: str, tensor: Tensor, given: object) -> None:
    """Raise an error unless an array is a tensor, or has the bytes of it."""
    if not isinstance(given, np.ndarray):
        raise TypeError(f"tensor {name!r} must be an array of NumPy, got {given!r:.80}")
    expected = tensor.num_bytes
    is_right = given.nbytes == expected if given.dtype == np.uint8 else _holds(tensor, given)
    if not is_right or not given.flags.c_contiguous:
        raise ValueError(
            f"tensor {name!r} must be {tensor.type} of shape {tensor.shape} or its {expected} "
            f"bytes as uint8, contiguous, got {given.nbytes} bytes of {given.dtype}, shape "
            f"{given.shape}"
        )


def _holds(tensor: Tensor, given: Array) -> bool:
    """Return whether an array has the numbers of a tensor; bf16 may come as its bits, uint16."""
    dtypes = {"f32": ("float32",), "f16": ("float16",), "bf16": ("bfloat16", "uint16")}
    is_dtype = given.dtype.name in dtypes.get(tensor.type, ()) and given.dtype.isnative
    return is_dtype and given.shape == tensor.shape


def check_step(
    program: Program, arrays: Mapping[str, Array], num_tokens: int, num_selected: int
) -> None:
    """Raise a ValueError unless the arrays hold a step of so many tokens."""
    limits = program.limits
    _check_integer("num_tokens", num_tokens, 1, limits.max_tokens)
    _check_integer("num_selected", num_selected, 0, min(num_tokens, limits.max_selected))
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
    for before, after in itertools.pairwise(arrays["selected"][:num_selected]):
        if after <= before:
            raise ValueError(f"the indices in selected must ascend, got {after} after {before}")
    for slot in np.unique(slots):
        for before, after in itertools.pairwise(positions[slots == slot].tolist()):
            if after != before + 1:
                raise ValueError(
                    f"the positions of slot {slot} must ascend one by one, got {after} after "
                    f"{before}"
                )
        _check_sampling(program, arrays, int(slot))
    if any(isinstance(cache, State) for cache in program.caches.values()):
        for name in ("state_before", "state_after"):
            given = arrays[name][:num_tokens]
            bad = given[(given < -1) | (given >= limits.num_states)]
            if bad.size:
                raise ValueError(
                    f"each {name} must be from -1 to {limits.num_states - 1}, got {bad[0]}"
                )
    window = _longest_window(program)
    if window is None:
        return
    # Only the pages that are read must be there: those before all windows may be gone.
    for slot, last in zip(slots.tolist(), positions.tolist(), strict=True):
        first = max(0, last - window + 1) if window else 0
        _check_pages(program, arrays, slot, first, last)


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
    for index, ends in enumerate(end_tokens):
        for token in ends:
            _check_integer(f"each of end_tokens[{index}]", token, -(2**31), 2**31 - 1)
    _check_integer("num_steps", num_steps, 1, limits.max_seq_length)
    slots = arrays["slots"][:num_tokens]
    if len(np.unique(slots)) != num_tokens:
        raise ValueError(f"each slot must have one token, got the slots {slots.tolist()}")
    positions = arrays["positions"][:num_tokens]
    for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
        last = position + num_steps - 1
        if last >= limits.max_seq_length:
            raise ValueError(
                f"positions must stay below {limits.max_seq_length}, "
                f"but slot {slot} comes to {last}"
            )
        if _longest_window(program) is not None:
            _check_pages(program, arrays, slot, position, last)


def _check_integer(name: str, given: object, least: int, most: int) -> None:
    if not isinstance(given, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {given!r:.80}")
    if not least <= given <= most:
        raise ValueError(f"{name} must be from {least} to {most}, got {given}")


def _longest_window(program: Program) -> int | None:
    """Return how many positions the nodes with pages read at most; 0 for all, None for no pages."""
    windows = []
    for node in program.nodes:
        kind = KINDS[node.kind]
        if kind.cache is not None and program.caches[node.attributes["cache"]].paged:
            windows.append(node.attributes[kind.window] if kind.window else 0)
    return 0 if 0 in windows else max(windows, default=None)


def _check_pages(
    program: Program, arrays: Mapping[str, Array], slot: int, first: int, last: int
) -> None:
    """Raise a ValueError unless the pages of the positions from `first` to `last` are there."""
    size, end = program.limits.page_size, program.limits.num_pages
    given = arrays["page_table"][slot, first // size : last // size + 1]
    is_missing = (given < 0) | (given >= end)
    if np.any(is_missing):
        index = int(np.argmax(is_missing))
        raise ValueError(
            f"page_table[{slot}, {first // size + index}] must be from 0 to {end - 1}, got "
            f"{given[index]}"
        )


def _check_sampling(program: Program, arrays: Mapping[str, Array], slot: int) -> None:
    sampled = drawn_from(program.nodes)
    if not sampled:
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
    number, most = arrays["num_edits"][slot], program.limits.edits_per_request
    if not 0 <= number <= most:
        raise ValueError(f"num_edits[{slot}] must be from 0 to {most}, got {number}")
    end = min(program.values[name].columns for name in sampled)
    tokens, biases, penalties = (
        arrays[name][slot, :number] for name in ("edited_tokens", "edit_biases", "edit_penalties")
    )
    for name, given, is_valid, expected in (
        ("edited_tokens", tokens, (tokens >= 0) & (tokens < end), f"from 0 to {end - 1}"),
        ("edit_biases", biases, biases < np.inf, "a number or minus infinity"),
        ("edit_penalties", penalties, (penalties > 0) & (penalties < np.inf), "finite and above 0"),
    ):
        if not np.all(is_valid):
            index = int(np.argmin(is_valid))
            raise ValueError(f"{name}[{slot}, {index}] must be {expected}, got {given[index]}")


def vocabulary(program: Program) -> int:
    """Return what tokens must be below: the rows of the tables that they are looked up in."""
    parts = program.limits, program.tensors, program.caches
    bounds = []
    for node in program.nodes:
        names = {*node.inputs.values()}
        if TOKENS.name not in names:
            continue
        values = {name: program.values[name] for name in names - {TOKENS.name}}
        known = {name: InferredValue(name, value) for name, value in values.items()}
        given = given_to(node.name, node, *parts, known | {TOKENS.name: TOKENS})
        bounds += [
            bound_of(KINDS[node.kind], given, slot)
            for slot in KINDS[node.kind].inputs
            if slot.below and node.inputs.get(slot.name) == TOKENS.name
        ]
    return min(bounds, default=MOST_SIZE)
