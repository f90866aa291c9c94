"""The arguments of a kernel: what they must be, and what stands for those of other libraries."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from tensor_ops.extension import did_you_mean
from tensor_ops_decode.cache_types import CACHE_DTYPES
from tensor_ops_decode.program import Limits
from tensor_ops_decode.weights.transforms import QUANTIZED_TYPES

__all__ = [
    "DEFAULT_SEQ_LENGTH",
    "check_names",
    "check_setting",
    "check_types",
    "given_end_tokens",
    "limits_of",
    "start_token_of",
    "whole",
]

#: The longest sequence where neither the caller nor the model asks for a shorter one.
DEFAULT_SEQ_LENGTH = 2048

# What Mirage's PersistentKernel has besides, and what to do here.
_REPLACED = {
    "num_local_schedulers": "the executor schedules its own work; num_workers sizes it",
    "num_remote_schedulers": "the executor schedules its own work; num_workers sizes it",
    "meta_tensors": "the kernel keeps them; add_request() takes tokens and tokens() returns them",
    "profiler_tensor": "profile() runs a step and says how long each node took",
    "trace_name": "profile() runs a step and says how long each node took",
    "spec_decode_config": "num_speculative_tokens has the model check guesses from the prompt",
}
_MODES = {
    "offline": "add_request() every prompt and call the kernel until the requests have ended",
    "online": "add_request() between calls, whenever a request arrives",
}


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError for arguments that are not known, saying what to do instead."""
    for name in given:
        if name in _REPLACED:
            raise TypeError(f"PersistentKernel() has no argument {name!r}: {_REPLACED[name]}")
        raise TypeError(
            f"PersistentKernel() has no argument {name!r}; {did_you_mean(name, known)}"
            f"the arguments are {', '.join(known)}"
        )


def check_setting(mode: str, world_size: object, mpi_rank: object, num_workers: object) -> None:
    """Raise a ValueError unless a kernel can run in this mode, here."""
    if mode != "decode":
        instead = f"; for {mode!r} work, {_MODES[mode]}" if mode in _MODES else ""
        raise ValueError(f"mode must be 'decode', got {mode!r}{instead}")
    if whole("world_size", world_size) != 1:
        raise ValueError(
            f"world_size must be 1, got {world_size}: a model cannot be spread over several ranks"
        )
    if mpi_rank != 0:
        raise ValueError(f"mpi_rank must be 0, as world_size is 1; got {mpi_rank!r}")
    if num_workers is not None:
        whole("num_workers", num_workers)


def check_types(
    cache_dtype: object, quantize: object, quantize_head: object, *, has_model: bool
) -> None:
    """Raise a ValueError unless caches and weights can be of these types."""
    if cache_dtype not in (None, *CACHE_DTYPES):
        expected = " or ".join(map(repr, CACHE_DTYPES))
        raise ValueError(f"cache_dtype must be {expected}, got {cache_dtype!r}")
    for name, given in (("quantize", quantize), ("quantize_head", quantize_head)):
        if given is not None and (not has_model or given not in QUANTIZED_TYPES):
            expected = f"one of {', '.join(QUANTIZED_TYPES)}, beside model="
            raise ValueError(f"{name} must be {expected}, got {given!r}")


def limits_of(
    max_seq_length: int,
    max_num_batched_requests: int,
    max_num_batched_tokens: int,
    max_num_pages: int | None,
    page_size: int,
    num_speculative_tokens: int = 0,
) -> Limits:
    """Return the limits of a kernel's program.

    Raises
    ------
    ValueError
        If one is no positive integer, or they do not fit together.
    """
    length = whole("max_seq_length", max_seq_length)
    requests = whole("max_num_batched_requests", max_num_batched_requests)
    tokens = whole("max_num_batched_tokens", max_num_batched_tokens)
    size = whole("page_size", page_size)
    if tokens < requests:
        raise ValueError(
            f"max_num_batched_tokens must be at least max_num_batched_requests, {requests}, since "
            f"a step has a token of each request; got {tokens}"
        )
    guesses = whole("num_speculative_tokens", num_speculative_tokens, 0)
    if requests * (1 + guesses) > tokens:
        raise ValueError(
            f"a step has {requests} requests with {guesses} guesses each, for which "
            f"max_num_batched_tokens must be at least {requests * (1 + guesses)}, got {tokens}"
        )
    num_pages = requests * -(-length // size)
    if max_num_pages is not None:
        if max_num_pages == 0:
            raise ValueError(
                "max_num_pages is 0: there is no memory to count with. get_backend_info() has a "
                "max_memory of 0 for a backend that is unavailable, or has no memory of its own; "
                "leave the argument out, and what the other limits need is reserved"
            )
        num_pages = min(num_pages, whole("max_num_pages", max_num_pages))
    return Limits(requests, tokens, requests * (1 + guesses), length, size, num_pages)


def start_token_of(metadata: Mapping[str, Any]) -> int:
    """Return the token that begins a text, as the model's files say; 0 if they do not."""
    start = metadata.get("tokenizer.ggml.bos_token_id", metadata.get("bos_token_id"))
    return start if isinstance(start, int) else 0


def given_end_tokens(given: Any) -> frozenset[int]:
    """Return the tokens of the argument ``eos_token_id``."""
    tokens = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
    try:
        return frozenset(whole("eos_token_id", each, 0) for each in tokens)
    except ValueError:
        raise ValueError(
            f"eos_token_id must be a token, or a list of tokens, got {given!r}"
        ) from None


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return an argument as an int, if it is an integer of Python or NumPy in its range."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or found < least or (most is not None and found > most):
        expected = "a positive integer" if least else "an integer, 0 or larger"
        expected = expected if most is None else f"an integer from {least} to {most}"
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return found
