"""The arguments of a kernel: their checks, and what to use instead of arguments of Mirage."""

import functools
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tensor_ops_decode.arguments import check_known, whole
from tensor_ops_decode.kinds.cache_types import CACHE_DTYPES
from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.weights import Weights
from tensor_ops_decode.weights.transforms import QUANTIZED_TYPES

__all__ = ["DEFAULT_SEQ_LENGTH", "KernelSettings", "by_argument", "check_names"]

#: The longest sequence where neither the caller nor the model asks for a shorter one.
DEFAULT_SEQ_LENGTH = 2048

# The most that a limit of a program can be.
_MOST = 2**31 - 1

# Arguments that only Mirage's PersistentKernel has, and what to do here.
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


def check_names(given: Collection[str], known: Iterable[str]) -> None:
    """Raise a TypeError for arguments that are not known, saying what to do instead."""
    for name in given:
        if name in _REPLACED:
            raise TypeError(f"PersistentKernel() has no argument {name!r}: {_REPLACED[name]}")
    check_known("PersistentKernel", given, known)


@dataclass(eq=False)
class KernelSettings:
    """The arguments of a kernel that say what it runs and how, under their names there; checked.

    Attributes
    ----------
    limits : Limits
        Of a program for sequences of `max_seq_length`, or else of the default length.
    end_tokens : frozenset of int or None
        What `eos_token_id` says.
    """

    mode: str
    model: str | os.PathLike[str] | Weights | None
    adapter: str | os.PathLike[str] | None
    num_workers: int | None
    max_seq_length: int | None
    max_num_batched_requests: int
    max_num_batched_tokens: int
    max_num_pages: int | None
    page_size: int
    num_speculative_tokens: int
    draft_vocab_size: int | None
    embeddings: bool | None
    max_num_snapshots: int | None
    eos_token_id: int | Sequence[int] | None
    activations: str | None
    cache_dtype: str | None
    quantize: str | None
    quantize_head: str | None
    cache: str | os.PathLike[str] | bool | None
    use_cutlass_kernel: bool | None
    limits: Limits = field(init=False)
    end_tokens: frozenset[int] | None = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode != "decode":
            is_known = isinstance(self.mode, str) and self.mode in _MODES
            instead = f"; for {self.mode!r} work, {_MODES[self.mode]}" if is_known else ""
            raise ValueError(f"mode must be 'decode', got {self.mode!r}{instead}")
        if self.num_workers is not None:
            whole("num_workers", self.num_workers)
        if self.embeddings is not None and not isinstance(self.embeddings, bool):
            raise TypeError(f"embeddings must be a bool, got {self.embeddings!r:.80}")
        self._check_model()
        self.end_tokens = None if self.eos_token_id is None else _end_tokens(self.eos_token_id)
        expected = " or ".join(map(repr, CACHE_DTYPES))
        _check_one_of("cache_dtype", self.cache_dtype, CACHE_DTYPES, expected)
        expected = f"one of {', '.join(QUANTIZED_TYPES)}, beside model="
        _check_one_of("quantize", self.quantize, QUANTIZED_TYPES, expected)
        _check_one_of("quantize_head", self.quantize_head, QUANTIZED_TYPES, expected)
        self._set_limits()

    def _check_model(self) -> None:
        model = self.model
        if model is None:
            names = ("num_speculative_tokens", "draft_vocab_size", "max_num_snapshots", "cache")
            for name in (*names, "quantize", "quantize_head", "embeddings", "adapter"):
                value = getattr(self, name)
                if value is not None and not (isinstance(value, int) and value == 0):
                    raise ValueError(f"{name} needs model=; leave it out for layers by hand")
        elif not isinstance(model, (str, os.PathLike)) and not hasattr(model, "metadata"):
            raise TypeError(
                f"model must be a path, or what open_weights() has returned, got {model!r:.80}"
            )

        if self.adapter is not None and not isinstance(self.adapter, (str, os.PathLike)):
            raise TypeError(f"adapter must be a folder, got {self.adapter!r:.80}")

    def _set_limits(self) -> None:
        length = DEFAULT_SEQ_LENGTH if self.max_seq_length is None else self.max_seq_length
        length = _limit("max_seq_length", length)
        requests = _limit("max_num_batched_requests", self.max_num_batched_requests)
        tokens = _limit("max_num_batched_tokens", self.max_num_batched_tokens)
        size = _limit("page_size", self.page_size)
        if tokens < requests:
            raise ValueError(
                f"max_num_batched_tokens must be at least max_num_batched_requests, {requests}, "
                f"since a step has a token of each request; got {tokens}"
            )
        guesses = _limit("num_speculative_tokens", self.num_speculative_tokens, 0)
        selected = requests * (1 + guesses)
        if selected > tokens:
            raise ValueError(
                f"with num_speculative_tokens a step has {requests} requests with {guesses} "
                f"guesses each, for which max_num_batched_tokens must be at least {selected}, got "
                f"{tokens}"
            )
        if self.draft_vocab_size is not None:
            self.draft_vocab_size = _limit("draft_vocab_size", self.draft_vocab_size)
            if guesses == 0:
                raise ValueError(
                    "draft_vocab_size is about guesses, and there are none: give "
                    "num_speculative_tokens= too"
                )
        if self.max_num_snapshots is not None:
            self.max_num_snapshots = _limit("max_num_snapshots", self.max_num_snapshots, 0)
            if requests * guesses + self.max_num_snapshots > _MOST:
                raise ValueError(
                    f"max_num_snapshots must be at most {_MOST - requests * guesses} beside so "
                    f"many guesses, got {self.max_num_snapshots}"
                )
        if self.max_num_pages is not None:
            self.max_num_pages = whole("max_num_pages", self.max_num_pages, 0)
            if self.max_num_pages == 0:
                raise ValueError(
                    "max_num_pages is 0: there is no memory to count with. get_backend_info() has "
                    "a max_memory of 0 for a backend that is unavailable, or has no memory of its "
                    "own; leave the argument out, and what the other limits need is reserved"
                )
        self.limits = Limits(requests, tokens, selected, length, size, num_pages=1)
        self.limits = self.limits_for(length)

    def limits_for(self, length: int) -> Limits:
        """Return the limits of a program for sequences of a length."""
        limits = replace(self.limits, max_seq_length=length)
        needed = limits.max_requests * limits.pages_per_request
        return replace(limits, num_pages=min(needed, self.max_num_pages or _MOST, _MOST))

    def add_states(self, num_snapshots: int) -> None:
        """Have room for a state of each guess, and for snapshots."""
        guesses = self.limits.max_requests * self.limits.guesses_per_request
        self.limits = replace(self.limits, extra_states=guesses + num_snapshots)

    def end_tokens_among(self, vocabulary: int, found: Iterable[int] = ()) -> frozenset[int]:
        """Return what ends an answer: what was asked for, or those found that there are."""
        if self.end_tokens is None:
            return frozenset(token for token in found if token < vocabulary)
        if (largest := max(self.end_tokens, default=0)) >= vocabulary:
            raise ValueError(
                f"eos_token_id must have tokens from 0 to {vocabulary - 1}, got {largest}"
            )
        return self.end_tokens

    @property
    def name_among_ranks(self) -> str:
        """The name by which the ranks of the model in one process find each other."""
        if self.model is None:
            return "layers"
        model = self.model
        return os.fspath(model if isinstance(model, (str, os.PathLike)) else model.path)

    @property
    def options(self) -> dict[str, object]:
        """The options of the executor that are given."""
        options = {"activations": self.activations, "use_cutlass_kernel": self.use_cutlass_kernel}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def length_by(self) -> str:
        """The source of the longest sequence, unless a model decides on it."""
        return "the default" if self.max_seq_length is None else "max_seq_length"

    @property
    def activations_by(self) -> str:
        """The source of what activations are rounded to, unless a model decides on it."""
        return "the default" if self.activations is None else "activations="

    def refusal(self, backend: str, module: Any, with_options: bool) -> str | None:
        """Return why the kernel cannot use a backend, None if it can; see `ExecutorChoice`."""
        if self.use_cutlass_kernel is not None and backend != "cuda":
            return "use_cutlass_kernel chooses between kernels of the backend 'cuda'; leave it out"
        if not with_options:
            return None
        if self.cache and not hasattr(module, "packed_layout"):
            return "it does not pack weights; leave cache= out, or choose another backend"
        is_asked = self.options or self.num_workers is not None
        if not (is_asked and hasattr(module, "program_memory")):
            return None
        # It checks what compile_program() does, and reads no weights.
        try:
            module.program_memory(
                _smallest_program(), num_workers=self.num_workers, options=self.options
            )
        except ValueError as error:
            return str(error)
        except RuntimeError:
            pass  # about the program, which is none of the caller's
        return None


@functools.cache
def _smallest_program() -> str:
    builder = Builder(Limits(1, 1, 1, 1, 1, 1))
    table = builder.tensor("table", Tensor("f32", (1, 1), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    last = builder.add("select", {"x": x}, output="last")
    return builder.program([builder.add("argmax", {"x": last}, output="next")]).to_json()


def by_argument(limits: Limits) -> dict[str, int]:
    """Return the limits of a program by the names of the kernel's arguments."""
    return {
        "max_seq_length": limits.max_seq_length,
        "max_num_batched_requests": limits.max_requests,
        "max_num_batched_tokens": limits.max_tokens,
        "max_num_pages": limits.num_pages,
        "page_size": limits.page_size,
        "num_speculative_tokens": limits.guesses_per_request,
        "max_num_snapshots": limits.num_snapshots,
    }


def _limit(name: str, value: object, least: int = 1) -> int:
    found = whole(name, value, least)
    if found > _MOST:
        raise ValueError(f"{name} must be at most {_MOST}, got {value!r}")
    return found


def _check_one_of(name: str, given: object, names: Collection[str], expected: str) -> None:
    if given is not None and not (isinstance(given, str) and given in names):
        raise ValueError(f"{name} must be {expected}, got {given!r}")


def _end_tokens(given: Any) -> frozenset[int]:
    tokens = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
    try:
        return frozenset(whole("eos_token_id", each, 0, _MOST) for each in tokens)
    except ValueError:
        raise ValueError(
            f"eos_token_id must be a token, or a list of tokens, got {given!r:.80}"
        ) from None
