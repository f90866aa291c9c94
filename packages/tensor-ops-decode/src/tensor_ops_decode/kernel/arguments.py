"""The arguments of a kernel: what they must be, and what stands for those of other libraries."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tensor_ops.extension import did_you_mean
from tensor_ops_decode.arguments import whole
from tensor_ops_decode.kinds.cache_types import CACHE_DTYPES
from tensor_ops_decode.program import Limits
from tensor_ops_decode.weights.transforms import QUANTIZED_TYPES

__all__ = [
    "check_end_tokens",
    "check_model",
    "check_names",
    "check_setting",
    "check_types",
    "given_end_tokens",
    "limits_of",
    "start_token_of",
]

# The most that a limit of a program can be.
_MOST = 2**31 - 1

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
    if not isinstance(mode, str) or mode != "decode":
        is_known = isinstance(mode, str) and mode in _MODES
        instead = f"; for {mode!r} work, {_MODES[mode]}" if is_known else ""
        raise ValueError(f"mode must be 'decode', got {mode!r}{instead}")
    if whole("world_size", world_size) != 1:
        raise ValueError(
            f"world_size must be 1, got {world_size}: a model cannot be spread over several ranks"
        )
    if whole("mpi_rank", mpi_rank, 0) != 0:
        raise ValueError(f"mpi_rank must be 0, as world_size is 1; got {mpi_rank!r}")
    if num_workers is not None:
        whole("num_workers", num_workers)


def check_types(cache_dtype: object, quantize: object, quantize_head: object) -> None:
    """Raise a ValueError unless caches and weights can be of these types."""
    if not _is_one_of(cache_dtype, CACHE_DTYPES):
        expected = " or ".join(map(repr, CACHE_DTYPES))
        raise ValueError(f"cache_dtype must be {expected}, got {cache_dtype!r}")
    for name, given in (("quantize", quantize), ("quantize_head", quantize_head)):
        if not _is_one_of(given, QUANTIZED_TYPES):
            expected = f"one of {', '.join(QUANTIZED_TYPES)}, beside model="
            raise ValueError(f"{name} must be {expected}, got {given!r}")


def check_model(model: object, given: Mapping[str, Any]) -> None:
    """Raise an error unless a model is a path or opened, or there is none and none is needed.

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If there is none, and one of the arguments that need it is given.
    """
    if model is None:
        for name, value in given.items():
            if value is not None and not (isinstance(value, int) and value == 0):
                raise ValueError(f"{name} needs model=; leave it out for layers by hand")
        return
    if not isinstance(model, (str, os.PathLike)) and not hasattr(model, "metadata"):
        raise TypeError(
            f"model must be a path, or what open_weights() has returned, got {model!r:.80}"
        )


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
    length = _limit("max_seq_length", max_seq_length)
    requests = _limit("max_num_batched_requests", max_num_batched_requests)
    tokens = _limit("max_num_batched_tokens", max_num_batched_tokens)
    size = _limit("page_size", page_size)
    if tokens < requests:
        raise ValueError(
            f"max_num_batched_tokens must be at least max_num_batched_requests, {requests}, since "
            f"a step has a token of each request; got {tokens}"
        )
    guesses = _limit("num_speculative_tokens", num_speculative_tokens, 0)
    if requests * (1 + guesses) > tokens:
        raise ValueError(
            f"with num_speculative_tokens a step has {requests} requests with {guesses} guesses "
            "each, for which "
            f"max_num_batched_tokens must be at least {requests * (1 + guesses)}, got {tokens}"
        )
    num_pages = min(requests * -(-length // size), _MOST)
    if max_num_pages is not None:
        if whole("max_num_pages", max_num_pages, 0) == 0:
            raise ValueError(
                "max_num_pages is 0: there is no memory to count with. get_backend_info() has a "
                "max_memory of 0 for a backend that is unavailable, or has no memory of its own; "
                "leave the argument out, and what the other limits need is reserved"
            )
        num_pages = min(num_pages, whole("max_num_pages", max_num_pages))
    return Limits(requests, tokens, requests * (1 + guesses), length, size, num_pages)


def _limit(name: str, value: object, least: int = 1) -> int:
    found = whole(name, value, least)
    if found > _MOST:
        raise ValueError(f"{name} must be at most {_MOST}, got {value!r}")
    return found


def _is_one_of(given: object, names: Iterable[str]) -> bool:
    return given is None or (isinstance(given, str) and given in names)


def start_token_of(metadata: Mapping[str, Any]) -> int:
    """Return the token that begins a text, as the model's files say; 0 if they do not."""
    start = metadata.get("tokenizer.ggml.bos_token_id", metadata.get("bos_token_id"))
    return start if isinstance(start, int) else 0


def given_end_tokens(given: Any) -> frozenset[int]:
    """Return the tokens of the argument ``eos_token_id``."""
    tokens = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
    try:
        return frozenset(whole("eos_token_id", each, 0, _MOST) for each in tokens)
    except ValueError:
        raise ValueError(
            f"eos_token_id must be a token, or a list of tokens, got {given!r:.80}"
        ) from None


def check_end_tokens(tokens: Iterable[int], vocabulary: int) -> None:
    """Raise a ValueError for end tokens that a model cannot choose."""
    wrong = [token for token in tokens if token >= vocabulary]
    if wrong:
        raise ValueError(
            f"eos_token_id must have tokens from 0 to {vocabulary - 1}, got {max(wrong)}"
        )
