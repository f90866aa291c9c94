"""The memory of an executable of the backend ``python``: its arrays and caches, and their bytes."""

import math
from typing import Any

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Cache, Limits, Program, State
from tensor_ops_decode.program.records import PER_EDIT, PER_REQUEST, PER_TOKEN

__all__ = ["memory_of", "new_arrays", "shapes_of_cache"]


def memory_of(program: Program, dtype: np.dtype[Any]) -> dict[str, int]:
    """Return the bytes of what an executable takes, by what takes them."""
    slots = [names for node in program.nodes for names in node.weights.values()]
    # A tensor alone in its slot is one array for all nodes; several of a slot are joined for it.
    names = [names[0] for names in {names for names in slots if len(names) == 1}]
    names += [name for names in slots if len(names) > 1 for name in names]
    weights = dict.fromkeys((False, True), 0)  # by whether they are rotary tables
    for tensor in map(program.tensors.__getitem__, names):
        weights["rotary" in tensor.source] += _bytes_of(tensor.shape, dtype)
    caches = {"caches": 0}
    for cache in program.caches.values():
        name = "states" if isinstance(cache, State) else "caches"
        for each in shapes_of_cache(program.limits, cache, dtype):
            caches[name] = caches.get(name, 0) + _bytes_of(*each)
    return {
        "weights": weights[False],
        **caches,
        "rotary tables": weights[True],
        "arrays": sum(_bytes_of(*each) for each in _shapes_of_arrays(program).values()),
    }


def _bytes_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize


def shapes_of_cache(
    limits: Limits, cache: Cache | State, dtype: np.dtype[Any]
) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return what the keys and the values of a cache, or a state, are kept in."""
    if isinstance(cache, State):
        return [((limits.num_states, *cache.sizes), dtype)]
    pages = (limits.num_pages, limits.page_size)
    if not cache.paged:
        pages = (limits.max_requests, limits.max_seq_length)
    # what int8 is rounded to is kept as the numbers that it means
    kept = np.dtype(np.float16) if cache.dtype == "float16" else dtype
    heads, keys, values = cache.sizes
    return [((*pages, heads, keys), kept), ((*pages, heads, values), kept)]


def _shapes_of_arrays(program: Program) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    limits = program.limits
    shapes: dict[str, tuple[tuple[int, ...], Any]]
    shapes = dict.fromkeys(PER_TOKEN, ((limits.max_tokens,), np.int32))
    shapes["selected"] = (limits.max_selected,), np.int32
    shapes["page_table"] = (limits.max_requests, limits.pages_per_request), np.int32
    for name, dtype in PER_REQUEST.items():
        shapes[name] = (limits.max_requests,), dtype
    for name, dtype in PER_EDIT.items():
        shapes[name] = (limits.max_requests, limits.edits_per_request), dtype
    for name in program.outputs:
        value = program.values[name]
        rows = limits.rows(value.rows)
        shapes[name] = (rows, value.columns), value.dtype
    return {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in shapes.items()}


def new_arrays(program: Program) -> dict[str, Array]:
    """Return the arrays of a step, filled as they are before the first."""
    arrays = {name: np.zeros(*each) for name, each in _shapes_of_arrays(program).items()}
    arrays["top_p"][:] = 1
    for name in ("state_before", "state_after"):  # the slot's own
        arrays[name][:] = -1
    return arrays
