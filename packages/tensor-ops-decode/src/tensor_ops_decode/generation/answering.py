"""How a model answers: the arguments of `Model.generate` become answers that steps can begin."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.generation.answer import Answer, errors_of_prompt
from tensor_ops_decode.generation.constraints import Constraints, take_constraint
from tensor_ops_decode.generation.running_answers import RunningAnswers, remove_abandoned
from tensor_ops_decode.generation.sequence_breakers import TextBreakers, check_breakers
from tensor_ops_decode.generation.stop_strings import StopStrings
from tensor_ops_decode.text.arguments import Prompt, checked_prompt, checked_strings
from tensor_ops_decode.weights import FileFormatError

if TYPE_CHECKING:
    from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
    from tensor_ops_decode.text import Tokenizer

__all__ = ["Answering"]


class Answering:
    """The kernel and the tokenizer of a model, and what all of its answers share.

    The lock is held by who uses the kernel for more than a call, after `remove_abandoned`.
    `problem` is what is wrong with the end tokens of the model's files, if anything is.
    """

    def __init__(
        self, kernel: PersistentKernel, tokenizer: Tokenizer, vocabulary: int, problem: str | None
    ) -> None:
        self.lock = threading.RLock()
        self._kernel, self._tokenizer, self._vocabulary = kernel, tokenizer, vocabulary
        self._problem = problem
        self._abandoned: deque[int] = deque()  # requests of streams that nothing refers to

    def running(self, answers: Sequence[Answer] = ()) -> RunningAnswers:
        """Return answers on their way, which no step has begun."""
        return RunningAnswers(self._kernel, self.lock, self._abandoned, answers)

    def remove_abandoned(self) -> None:
        """Remove the requests of answers that nobody waits for; the caller holds the lock."""
        remove_abandoned(self._kernel, self._abandoned)

    def tokens(self, number: int, prompt: Prompt) -> list[int]:
        """Return the tokens of a prompt, which an error calls by its number."""
        given = checked_prompt(f"prompt {number}", prompt)
        return self._tokenizer.encode(given) if isinstance(given, str) else given

    def answers(
        self,
        prompts: Sequence[Prompt],
        stream: Callable[[int, str], None] | None,
        *,
        n: int,
        max_new_tokens: int,
        seed: int,
        stop: str | Sequence[str],
        ignore_eos: bool,
        logit_bias: Mapping[int, float] | None,
        dry_sequence_breakers: str | Sequence[str],
        shown_tokens: frozenset[int] = frozenset(),
        **request: Any,
    ) -> list[Answer]:
        """Check the arguments of `Model.generate`, and return the answers.

        `shown_tokens` are special tokens whose names are part of the text.
        """
        if self._problem and not ignore_eos:
            raise FileFormatError(self._problem)
        stops = StopStrings(checked_strings("stop", stop))
        if stream is not None and not callable(stream):
            raise TypeError(f"stream must be a function, got {stream!r}")
        if stops or stream is not None:
            self._tokenizer.check_exists()
        breakers = checked_strings("dry_sequence_breakers", dry_sequence_breakers)
        check_breakers(breakers)
        described = take_constraint(request)
        constraint = self._constraints.compiled(described, ignore_eos) if described else None
        end_tokens = None if constraint is None else self._kernel.end_tokens
        most, seed = whole("max_new_tokens", max_new_tokens), whole("seed", seed, 0)
        request |= {
            "ignore_eos": ignore_eos,
            "logit_bias": {} if logit_bias is None else logit_bias,
        }
        # Where nothing is subtracted, they need no tokenizer.
        if isinstance(multiplier := request["dry_multiplier"], Real) and float(multiplier) > 0:
            request["dry_sequence_breakers"] = self._breakers.of(breakers)
        all_prompts = [prompt for prompt in prompts for _ in range(whole("n", n))]
        answers: list[Answer] = []
        for number, prompt in enumerate(all_prompts):
            tokens = self.tokens(number, prompt)
            # The last token of an answer is not fed.
            room = self._kernel.program.limits.longest - len(tokens) + 1
            given = {"max_new_tokens": min(most, max(room, 1)), "seed": seed + number, **request}
            given["constraint"] = None if constraint is None else constraint.copy()
            text = self._tokenizer, stops, stream, end_tokens, shown_tokens
            answer = Answer(number, tokens, given, *text)
            with errors_of_prompt(number, len(all_prompts)):
                answer.check_rows(self._vocabulary)
                self._kernel.check_request(tokens=tokens, **given)
            answers.append(answer)
        return answers

    @cached_property
    def _breakers(self) -> TextBreakers:
        return TextBreakers(self._tokenizer, self._vocabulary)

    @cached_property
    def _constraints(self) -> Constraints:
        return Constraints(self._tokenizer, self._vocabulary, self._kernel.end_tokens)
