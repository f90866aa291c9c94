"""A request: a sequence of tokens that a kernel continues."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from tensor_ops_decode.arguments import check_known, whole
from tensor_ops_decode.completion import TokenLogprob
from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.program.node_slots import drawn_from
from tensor_ops_decode.program.step_rules import vocabulary
from tensor_ops_decode.scheduling.constraint import TokenConstraint
from tensor_ops_decode.scheduling.prompt_lookup import PromptLookup
from tensor_ops_decode.scheduling.sampling import Sampling

__all__ = [
    "Request",
    "StepPart",
    "check_lengths",
    "checked_request",
    "checked_tokens",
    "described",
]

_ARGUMENTS = (
    "max_new_tokens",
    "ignore_eos",
    "end_tokens",
    "logprobs",
    "choose",
    "constraint",
    "announce",
)


@dataclass(eq=False)
class Request:
    """One sequence of tokens, its prompt and what was generated.

    Attributes
    ----------
    tokens : list of int
        The prompt, then what was generated.
    end_tokens : frozenset of int
        The request ends when one of these is generated.
    max_new_tokens : int or None
        It ends when so many are generated.
    sampling : Sampling
    num_likeliest : int or None
        How many of the likeliest tokens are noted beside each generated one; None notes nothing.
    chooses : bool
        Whether its steps choose its tokens; else they leave logits, and `extend` gives it tokens.
    constraint : TokenConstraint or None
        Which tokens may be chosen.
    number : int
        What a user calls it by, once it is added.
    slot : int
        Its place in the executable, as long as it is active.
    prompt_length : int
    logits : ndarray or None
        Those of the next token, as its last step has left them.
    num_fed : int
        How many of its tokens have been through the model, in this request or in another one that
        began with the same.
    num_shared : int
        How many of them in another.
    num_accepted : int
        How many of the generated ones had been guessed, and came with others in a step.
    logprobs : list of TokenLogprob
        Of the tokens that were generated.
    error : LogitsError or None
        Why it has ended where no token could be chosen.
    lookup : PromptLookup
    drafted : tuple of int and list of int
        After how many tokens which guesses a draft has for the next ones.
    is_in_step : bool
        Whether a step has begun with it, after which it has not been advanced.
    num_computed : int
        How many of its tokens had been through the model when it last began anew.
    kept_state : tuple of int, or None
        After how many tokens which state is its own, where that is not the one of its slot.
    snapshot_lengths : set of int
        After how many tokens a snapshot of its state is wanted.
    snapshot_of_answer : int or None
        The full page behind which its last snapshot after generated tokens was taken.
    waits_for : tuple of Request and int, or None
        The request that is to take a snapshot after so many tokens, from which this one goes on.
    """

    tokens: list[int]
    end_tokens: frozenset[int]
    max_new_tokens: int | None
    sampling: Sampling
    num_likeliest: int | None = None
    chooses: bool = True
    constraint: TokenConstraint | None = None
    number: int = -1
    slot: int = -1
    prompt_length: int = field(init=False)
    logits: Array | None = None
    num_fed: int = 0
    num_shared: int = 0
    num_accepted: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    error: LogitsError | None = None
    lookup: PromptLookup = field(default_factory=PromptLookup)
    drafted: tuple[int, list[int]] = (0, [])
    is_in_step: bool = False
    num_computed: int = 0
    kept_state: tuple[int, int] | None = None
    snapshot_lengths: set[int] = field(default_factory=set)
    snapshot_of_answer: int | None = None
    waits_for: "tuple[Request, int] | None" = None

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)

    @property
    def generated(self) -> list[int]:
        return self.tokens[self.prompt_length :]

    @property
    def finish_reason(self) -> str | None:
        """``"stop"`` after an end token, ``"length"`` at the limit, None as long as it goes on.

        ``"stop"`` too where its constraint lets nothing follow, and ``"error"`` where its logits
        chose no token.
        """
        if self.error is not None:
            return "error"
        num_generated = len(self.tokens) - self.prompt_length
        if num_generated and self.tokens[-1] in self.end_tokens:
            return "stop"
        if self.constraint is not None and self.constraint.is_complete(self.generated):
            return "stop"
        return "length" if num_generated == self.max_new_tokens else None

    def most_tokens(self, longest: int) -> int:
        """Return how many tokens it may still get, if its sequence may be so long."""
        # The last token is not fed.
        room = longest - len(self.tokens) + 1
        if self.max_new_tokens is None:
            return room
        return min(room, self.prompt_length + self.max_new_tokens - len(self.tokens))

    @property
    def num_waiting(self) -> int:
        """How many of its tokens have not been through the model."""
        return len(self.tokens) - self.num_fed

    @property
    def needs_token(self) -> bool:
        """Whether its next step waits for a token that the caller chooses."""
        return not self.chooses and not self.num_waiting

    @property
    def may_guess(self) -> bool:
        """Whether a step may guess its tokens: it must choose them, by what it knows beforehand."""
        is_known = not self.sampling.has_penalties and not self.is_chosen_behind_steps
        return self.chooses and is_known

    def guesses(self, most: int, by_lookup: bool) -> list[int]:
        """Return guesses of its next tokens: of a draft, or what followed the last ones before."""
        if by_lookup:
            return self.lookup.propose(self.tokens, most)
        length, drafted = self.drafted
        return drafted[:most] if length == len(self.tokens) else []

    @property
    def is_chosen_behind_steps(self) -> bool:
        """Whether its tokens are chosen behind each step, by the logits that the step leaves."""
        return self.constraint is not None or self.sampling.is_beyond_steps

    @property
    def sampling_of_steps(self) -> Sampling:
        """How steps choose: what must be drawn behind a step is the likeliest token in it."""
        is_behind = self.is_chosen_behind_steps
        return replace(self.sampling, temperature=0.0) if is_behind else self.sampling

    @property
    def is_steady(self) -> bool:
        """Whether its next step differs from the one before by nothing but the token that is fed.

        The first token is chosen by a step of its own, so that it is returned as early as possible.
        """
        return (
            self.num_waiting == 1
            and self.may_guess
            and len(self.tokens) > self.prompt_length
            and self.num_likeliest is None
        )

    def extend(self, tokens: Sequence[int], longest: int) -> None:
        """Take the next tokens from the caller, if it waits for them and may have so many."""
        if not self.needs_token or self.finish_reason is not None:
            state = (
                f"has ended ({self.finish_reason})"
                if self.finish_reason is not None
                else "has tokens that the kernel has yet to be called for"
                if not self.chooses
                else "was added without choose=False, so that the kernel chooses its tokens"
            )
            raise ValueError(f"request {self.number} {state}; it cannot be extended")
        most = self.most_tokens(longest)
        if len(tokens) > most:
            raise ValueError(
                f"request {self.number} may have {most} more tokens, got {len(tokens)}: the limits "
                "are its max_new_tokens, max_seq_length and max_num_pages"
            )
        self.tokens.extend(tokens)

    def skip_to(self, num_fed: int) -> None:
        """Note that the caches have so many of its tokens by another request."""
        if num_fed > self.num_fed:
            new = max(0, num_fed - max(self.num_fed, self.num_computed))
            self.num_shared, self.num_fed = self.num_shared + new, num_fed

    def advance(self, num_fed: int, tokens: list[int]) -> None:
        """Note that tokens went through the model, and those that it chose after the last.

        All of these but the last went through it too. Those that a constraint leaves no choice of
        are added to them, for the next step. An interrupt after the tokens leaves a
        request that feeds its tokens once more, to the same positions.
        """
        self.tokens.extend(tokens)
        self.num_fed += num_fed + max(len(tokens) - 1, 0)
        self.is_in_step = False
        # Every token has its own log-probability, and edits for which the one before it counts.
        takes_several = self.num_likeliest is None and not self.sampling.has_edits
        if tokens and self.constraint is not None and self.max_new_tokens and takes_several:
            generated = self.generated
            if generated[-1] not in self.end_tokens:
                forced = self.constraint.forced(generated, self.max_new_tokens - len(generated))
                self.tokens.extend(forced)
                tokens.extend(forced)

    @property
    def state(self) -> int:
        """The number of its state."""
        if self.kept_state is not None and self.kept_state[0] == self.num_fed:
            return self.kept_state[1]
        return self.slot

    def begin_anew(self) -> None:
        """Feed all of its tokens again."""
        self.kept_state, self.num_computed = None, max(self.num_computed, self.num_fed)
        self.num_fed, self.is_in_step = 0, False


class StepPart(NamedTuple):
    """Tokens of one request in one step: its own tokens, followed by guesses of the next ones."""

    request: Request
    num_own: int
    guesses: list[int]

    @property
    def length(self) -> int:
        """How long its sequence is after the step, if all guesses are right."""
        return self.request.num_fed + self.num_own + len(self.guesses)


def described(plan: Sequence[StepPart]) -> str:
    """Return what a step is, as text that differs if the step does."""
    parts = []
    for request, num_own, guesses in plan:
        first = request.num_fed
        tokens = [*request.tokens[first : first + num_own], *guesses]
        is_new = len(request.tokens) == request.prompt_length
        settings = (request.sampling, request.max_new_tokens, sorted(request.end_tokens))
        parts.append((request.slot, first, request.state, num_own, tokens, is_new and settings))
    return repr(parts)


def checked_request(
    program: Program, tokens: object, max_new_tokens: int | None, sampling: Mapping[str, Any]
) -> tuple[list[int], Sampling]:
    """Return a prompt as a list and how tokens are chosen, if a program takes both.

    Raises TypeError or ValueError if the prompt is empty, too long, or not made of the program's
    tokens, or if a number is out of its range.
    """
    known = [field.name for field in fields(Sampling)]
    check_known("add_request", sampling, [*_ARGUMENTS, *known])
    how = Sampling(**sampling)
    sampled = drawn_from(program.nodes)
    if not sampled and (how.temperature or how.has_edits):
        raise ValueError(
            "the program chooses by argmax; temperature must be 0, without penalties and logit_bias"
        )
    if how.logit_bias:
        end = min(program.values[name].columns for name in sampled)
        if max(how.logit_bias) >= end:
            raise ValueError(
                f"tokens of logit_bias must be from 0 to {end - 1}, got {max(how.logit_bias)}"
            )
        if sum(bias == -math.inf for bias in how.logit_bias.values()) == end:
            raise ValueError(f"logit_bias bans all of the {end} tokens; leave one at least")
    prompt = checked_tokens(program, tokens, "the prompt")
    check_lengths(program, len(prompt), max_new_tokens)
    return prompt, how


def checked_tokens(program: Program, tokens: object, what: str) -> list[int]:
    """Return tokens as a list, if there are some and a program takes them; `what` is their name."""
    end = vocabulary(program)
    given = np.asarray(tokens)
    if given.dtype.kind in "Of" and isinstance(tokens, Sequence):  # as are integers of many bits
        large = [each for each in tokens if type(each) is int and not 0 <= each < end]
        if large and all(type(each) is int for each in tokens):
            raise ValueError(f"tokens must be from 0 to {end - 1}, got {large[0]} in {what}")
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise TypeError(f"{what} must be a sequence of token ids, got {tokens!r:.80}")
    if not given.size:
        raise ValueError(f"{what} is empty; it must have at least one token")
    wrong = given[(given < 0) | (given >= end)]
    if wrong.size:
        raise ValueError(f"tokens must be from 0 to {end - 1}, got {wrong[0]} in {what}")
    return [int(token) for token in given]


def check_lengths(program: Program, length: int, max_new_tokens: int | None) -> None:
    """Raise a ValueError if a program has no room for a prompt and for what is to follow it."""
    most = program.limits.longest
    new = None if max_new_tokens is None else whole("max_new_tokens", max_new_tokens)
    if length + (new or 1) - 1 > most:  # the last token is not fed
        are = " is" if new is None or length > most else f" and {new} new ones are"
        raise ValueError(
            f"a prompt of {length} tokens{are} more than max_seq_length and max_num_pages leave "
            f"room for, {most}"
        )
