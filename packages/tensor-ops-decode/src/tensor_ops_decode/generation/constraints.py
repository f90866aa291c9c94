"""Answers that follow a JSON schema, a regular expression or a grammar, by the library llguidance.

It is imported where an answer has a constraint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_ops import TensorOpsError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.text.arguments import check_texts

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["AnswerConstraint", "Constraints", "take_constraint"]

# JSON as json.dumps writes it: where any whitespace may stand, small models write nothing else.
_OF_JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# The library calls itself for what is within something else, or named by it, and so a text of some
# thousand rules takes more than the stack that threads have, whose end is the end of the process.
_MOST_LETTERS, _STACK_BYTES = 1 << 18, 1 << 29
_LETTERS_OF_ANY_STACK = 1 << 12
_stack_size_lock = threading.Lock()
# A text on whose tokens both libraries must agree.
_SAMPLE = '{"two words": [1, "é"]}\n'


def take_constraint(arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of constraints from others; return the one that is given, if any."""
    found = {name: arguments.pop(name) for name in ("json_schema", "regex", "grammar")}
    given = {name: value for name, value in found.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"an answer has one constraint, got {' and '.join(given)}; leave out one")
    return given


class Constraints:
    """What makes the constraints of a model's answers, with its tokens as llguidance wants them.

    `vocabulary` is the number of tokens that the model chooses from; `end_tokens` are allowed where
    an answer may end, and nowhere else.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, end_tokens: frozenset[int]) -> None:
        try:
            import llguidance
        except ImportError:
            raise TensorOpsError(
                "json_schema, regex and grammar need llguidance, which is not installed: "
                "pip install 'tensor-ops-decode[constraints]'"
            ) from None
        tokenizer.check_exists()
        self._new, self._vocabulary = llguidance.LLMatcher, vocabulary
        # Its errors would have the whole grammar.
        self._limits = llguidance.LLParserLimits(verbose_errors=False)
        self._has_end = bool(end_tokens)
        # The library wants one at least; the logits have none for this one.
        self._ends = sorted(end_tokens) or [vocabulary]
        self._tokens = _library_tokens(llguidance.LLTokenizer, tokenizer, vocabulary, self._ends)

    def compiled(self, given: Mapping[str, Any], ignore_eos: bool) -> AnswerConstraint:
        """Return the constraint that one argument of `Model.generate` describes.

        Raises ValueError or TypeError if it describes none, or one that no answer can follow.
        """
        ((name, value),) = given.items()
        if name == "json_schema":
            value = _checked_schema(value)
        elif not isinstance(value, str):
            raise TypeError(f"{name} must be a string, got {value!r:.80}")
        else:
            check_texts(given)
        if len(value) > _MOST_LETTERS:
            raise ValueError(
                f"{name} must have at most {_MOST_LETTERS} characters, got {len(value)}"
            )
        described = self._described(name, value)
        make = partial(self._new, self._tokens, described, log_level=0, limits=self._limits)
        matcher = make() if len(value) <= _LETTERS_OF_ANY_STACK else _with_deep_stack(make)
        if matcher.is_error():
            raise ValueError(_refusal(name, matcher.get_error()))
        has_end = self._has_end and not ignore_eos
        constraint = AnswerConstraint(matcher, self._vocabulary, self._ends, has_end)
        if not constraint.allows_any([]):
            if constraint.is_complete([]):
                raise ValueError(
                    f"{name} allows the empty answer alone, which needs an end token; the model "
                    "has none, or ignore_eos leaves it out"
                )
            raise ValueError(f"{name} allows no answer: {constraint.problem([])}")
        return constraint

    def _described(self, name: str, value: str) -> str:
        """Return what an argument describes in the library's own form."""
        text: str
        if name == "json_schema":
            try:
                text = self._new.grammar_from_json_schema(value, defaults=_OF_JSON)
            except ValueError as error:
                raise ValueError(_refusal(name, error)) from None
        elif name == "regex":
            text = self._new.grammar_from_regex(value)
        else:
            text = self._new.grammar_from_lark(value)
        return text


def _with_deep_stack(function: Callable[[], Any]) -> Any:
    """Call a function in a thread that has a large stack, most of which takes no memory."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)

    with _stack_size_lock:
        before = threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=run, daemon=True).start()
        finally:
            threading.stack_size(before)
    return found.result()


def _refusal(name: str, words: object) -> str:
    return f"{name} is refused by llguidance: {_words(words)}"


def _words(said: object) -> str:
    """Return what the library says, without what it says of its parser."""
    return str(said).partition("<non-verbose/>")[0].strip()[:300]


def _checked_schema(given: Any) -> str:
    """Return a JSON schema as text."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise ValueError(f"json_schema is no JSON: {error}") from None
    if not isinstance(given, Mapping):
        raise TypeError(f"json_schema must be a mapping, or one as JSON, got {given!r:.80}")
    try:
        return json.dumps(dict(given), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"json_schema must have JSON values only: {error}") from None


def _library_tokens(
    library: Any, tokenizer: Tokenizer, vocabulary: int, ends: Sequence[int]
) -> Any:
    """Return the tokens of a model as an ``LLTokenizer``, the class `library`."""
    # The embedding may have rows without a token, which write nothing and are never allowed.
    found = [
        tokenizer.token_bytes(token) if token in tokenizer else b"" for token in range(vocabulary)
    ]
    special = {token for token, text in enumerate(found) if text is None}.union(ends)
    names = [
        tokenizer.token(token).encode() if text is None else text
        for token, text in enumerate(found)
    ]
    names += [b"<end>"] * (max(ends) + 1 - vocabulary)

    def made(encode: Callable[[str], list[int]]) -> Any:
        # The library calls this for the tokens of a text that must follow. It loses exceptions, and
        # so there must be no function of Python in it: Ctrl-C would be lost there.
        described: Any = partial(encode)
        described.is_tokenizer_wrapper = True
        described.tokens, described.special_token_ids = names, sorted(special)
        described.eos_token_id, described.bos_token_id = ends[0], None
        return library(described, eos_token=[*ends])

    with suppress(ValueError):
        encode = library(_without_normal_form(tokenizer.to_json())).tokenize_str
        if b"".join(names[token] for token in encode(_SAMPLE)) == _SAMPLE.encode():
            return made(encode)
    # Of a kind that the library does not know: the longest token that fits comes first.
    return made(made(partial(list)).greedy_tokenize)


def _without_normal_form(text: str) -> str:
    """Return a tokenizer of bytes that changes none of them; others as they are."""
    state = json.loads(text)
    if state["normalizer"] is None or state["decoder"]["type"] != "ByteLevel":
        return text
    return json.dumps(state | {"normalizer": None})


class AnswerConstraint:
    """What one answer may go on with; see `TokenConstraint`."""

    def __init__(
        self, matcher: Any, vocabulary: int, end_tokens: Sequence[int], has_end: bool
    ) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self._end_tokens, self._has_end = end_tokens, has_end
        # How many tokens the matcher has had; None while it gets some, which Ctrl-C may stop.
        self._num_taken: int | None = 0
        self._mask_after: tuple[int, bytes] | None = None
        self._complete_after: tuple[int, bool] | None = None

    def copy(self) -> AnswerConstraint:
        """Return one for another answer, none of whose tokens is known."""
        matcher = self._matcher.deep_copy()
        return AnswerConstraint(matcher, self._vocabulary, self._end_tokens, self._has_end)

    def allows(self, generated: Sequence[int], token: int) -> bool:
        """Return whether a token may be the next one."""
        return bool(self._mask(generated)[token >> 3] >> (token & 7) & 1)

    def allows_any(self, generated: Sequence[int]) -> bool:
        """Return whether any token may be the next one."""
        return bool(self._mask(generated).strip(b"\0"))

    def allowed(self, generated: Sequence[int]) -> Array:
        """Return a bool for each token of the vocabulary: whether it may be the next one."""
        mask = np.frombuffer(self._mask(generated), np.uint8)
        return np.unpackbits(mask, count=self._vocabulary, bitorder="little").view(bool)

    def is_complete(self, generated: Sequence[int]) -> bool:
        """Return whether nothing may follow any more, so that the request has ended."""
        if self._complete_after is None or self._complete_after[0] != len(generated):
            self._take(generated)
            complete = self._matcher.is_stopped()
            if not complete and not self._has_end and self._matcher.is_accepting():
                complete = not self.allows_any(generated)
            is_whole = complete and not self._matcher.is_error()
            self._complete_after = len(generated), is_whole
        return self._complete_after[1]

    def forced(self, generated: Sequence[int], most: int) -> list[int]:
        """Return the tokens that must be the next ones, each the only one that is allowed."""
        known = list(generated)
        while len(known) - len(generated) < most and not self.is_complete(known):
            mask = self._mask(known)
            bits = mask.strip(b"\0")
            if len(bits) != 1 or bits[0] & (bits[0] - 1):
                break
            known.append(mask.index(bits) * 8 + bits[0].bit_length() - 1)
            if known[-1] in self._end_tokens:
                break
        return known[len(generated) :]

    def problem(self, generated: Sequence[int]) -> str:
        """Return why no token may follow; an empty string if one may."""
        if self.allows_any(generated):
            return ""
        words = _words(self._matcher.get_error()) or "nothing"
        return f"the constraint allows none; llguidance says: {words}"

    def _mask(self, generated: Sequence[int]) -> bytes:
        """Return a bit for each token, the first of a byte the lowest."""
        if self._mask_after is None or self._mask_after[0] != len(generated):
            self._take(generated)
            mask: bytes = self._matcher.compute_bitmask()
            if not self._has_end:
                bits = bytearray(mask)
                for token in self._end_tokens:
                    bits[token >> 3] &= ~(1 << (token & 7))
                mask = bytes(bits)
            if self._matcher.is_error():
                mask = bytes(len(mask))
            self._mask_after = len(generated), mask
        return self._mask_after[1]

    def _take(self, generated: Sequence[int]) -> None:
        """Let the matcher have the tokens that it has not had."""
        taken, self._num_taken = self._num_taken, None
        if taken is None:
            self._matcher.reset()
            taken = 0
        if len(generated) > taken:
            self._matcher.consume_tokens(list(generated[taken:]))
        self._num_taken = len(generated)
