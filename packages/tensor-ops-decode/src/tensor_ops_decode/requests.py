"""Requests: the sequences that a kernel continues, and which of their tokens a step takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensor_ops_decode.errors import CapacityError
from tensor_ops_decode.kernel_arguments import whole
from tensor_ops_decode.kv_cache import Beginning, PageTable
from tensor_ops_decode.logprobs import token_logprob
from tensor_ops_decode.node_kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.request import Request, StepPart
from tensor_ops_decode.sampling import Sampling, note_token, write_sampling
from tensor_ops_decode.step_rules import vocabulary

__all__ = ["Requests", "checked_request"]


class Requests:
    """The requests of an executable: their slots in it, their pages, and its steps.

    Parameters
    ----------
    program : Program
    executable : executable
        What a backend has made of it.
    logits, tokens : str
        The values that hold the logits of a step, and the tokens that it chose.
    num_speculative_tokens : int
        How many guesses a request may have in a step.

    Attributes
    ----------
    were_added : bool
        Whether there has been one, since the last `clear`.
    """

    def __init__(
        self,
        program: Program,
        executable: Any,
        logits: str,
        tokens: str,
        num_speculative_tokens: int = 0,
    ) -> None:
        self._limits = program.limits
        self._num_speculative_tokens = num_speculative_tokens
        # A contiguous cache belongs to its slot.
        self._shares_pages = all(cache.paged for cache in program.caches.values())
        self._executable = executable
        self._arrays: Mapping[str, Array] = executable.arrays
        self._logits, self._tokens = executable.arrays[logits], executable.arrays[tokens]
        self._has_row_per_token = program.values[tokens].rows == "tokens"
        self._numbers = itertools.count()
        self.clear()

    def clear(self) -> None:
        """Forget all requests; their numbers are not used again."""
        limits, table = self._limits, self._arrays["page_table"]
        self._pages = PageTable(table, limits.num_pages, limits.page_size)
        self._active: dict[int, Request] = {}
        self._ended: dict[int, Request] = {}
        self._rows: dict[int, int] = {}  # of the last step, by request
        self.were_added = False

    @property
    def active(self) -> tuple[int, ...]:
        """The numbers of those that have not ended, in the order in which they were added."""
        self.retire()
        return tuple(self._active)

    def has_room(self, length: int) -> bool:
        """Return whether a sequence can come to this length, whatever the active ones do."""
        limits, lengths = self._limits, {}
        for number in self.active:
            request = self._active[number]
            new = request.max_new_tokens or limits.longest
            lengths[request.slot] = min(request.prompt_length + new - 1, limits.longest)
        pages = self._pages.num_missing(lengths) + self._pages.pages_for(length)
        return len(lengths) < limits.max_requests and pages <= self._pages.num_free

    def add(
        self,
        prompt: list[int],
        end_tokens: frozenset[int],
        max_new_tokens: int | None,
        sampling: Sampling,
        num_likeliest: int | None = None,
    ) -> int:
        """Add a request with a prompt that `checked_prompt` has returned; return its number."""
        if len(self.active) == self._limits.max_requests:
            raise ValueError(
                f"{len(self._active)} requests are active, which is max_num_batched_requests; "
                "call the kernel until one ends, or remove() one"
            )
        used = {request.slot for request in self._active.values()}
        slot = min(set(range(self._limits.max_requests)) - used)
        self._pages.release(slot)  # those of its last request, if that was interrupted
        write_sampling(self._arrays, slot, sampling, prompt)
        number, length = next(self._numbers), len(prompt)
        self.were_added = True
        self._active[number] = Request(
            number, slot, prompt, length, end_tokens, max_new_tokens, sampling, num_likeliest
        )
        return number

    def find(self, number: int) -> Request:
        """Return a request, active or ended."""
        found = self._active.get(number) or self._ended.get(number)
        if found is None:
            there_are = ", ".join(map(str, [*self._active, *self._ended])) or "none"
            raise ValueError(f"there is no request {number!r}; there are {there_are}")
        return found

    def remove(self, number: int) -> None:
        """Forget a request, active or ended."""
        self.find(number)
        self._ended.pop(number, None)
        active = self._active.pop(number, None)
        if active is not None:
            self._pages.release(active.slot)

    def retire(self) -> None:
        """Take back the slots and the pages of the requests that have ended."""
        for number, request in list(self._active.items()):
            if request.finish_reason is not None:
                self._ended[number] = request
                del self._active[number]
                self._pages.release(request.slot)

    def logits(self, number: int) -> Array:
        """Return a copy of the logits that a request has got from the last step."""
        self.find(number)
        if number not in self._rows:
            raise ValueError(f"request {number} has got no token in the last step")
        logits: Array = self._logits[self._rows[number]].copy()
        return logits

    def step(self) -> dict[int, int]:
        """Run a step of all active requests, and return the last token of each that has got one.

        Raises
        ------
        CapacityError
            If there is no room for one; nothing has changed then.
        RuntimeError
            If there are none.
        """
        self.retire()
        beginnings = self._share_pages() if self._shares_pages else {}
        plan = self._plan(beginnings)
        if not plan:
            raise RuntimeError("no request is active: add one with add_request(), or reset()")
        self._check_room(plan)
        if self._num_speculative_tokens:
            plan = self._with_guesses(plan)
        self._pages.hold({part.request.slot: part.length for part in plan})
        num_tokens, num_selected, rows = self._fill(plan)
        self._rows = {}
        self._executable.run(num_tokens, num_selected)
        chosen = {}
        for request, count, guesses in plan:
            of_request = rows.get(request.number, range(0))
            tokens = self._accepted(of_request, guesses, request.end_tokens)
            if tokens:
                self._rows[request.number] = of_request[len(tokens) - 1]
                chosen[request.number] = tokens[-1]
            if request.num_likeliest is not None:
                request.logprobs[len(request.generated) :] = [
                    token_logprob(self._logits[row], token, request.num_likeliest)
                    for row, token in zip(of_request, tokens, strict=False)
                ]
            request.advance(count, tokens)
            if self._shares_pages:
                self._pages.note_full(request.slot, request.tokens, request.num_fed)
        self.retire()
        return chosen

    def _accepted(
        self, rows: Sequence[int], guesses: Sequence[int], end_tokens: frozenset[int]
    ) -> list[int]:
        """Return the tokens that were chosen in rows, as far as the guesses before them are right.

        Each is what the model would have chosen without guesses: a wrong one has no part in it.
        """
        tokens: list[int] = []
        for row, guess in itertools.zip_longest(rows, guesses):
            tokens.append(int(self._tokens[row, 0]))
            if tokens[-1] != guess or guess in end_tokens:
                break
        return tokens

    def _share_pages(self) -> dict[int, Beginning]:
        """Let prompts skip what the caches have; return what each will fill its next page with."""
        found = {}
        for number, request in self._active.items():
            if request.num_waiting > 1:
                request.skip_to(self._pages.share(request.slot, request.tokens))
                beginning = self._pages.next_beginning(request.slot, request.tokens)
                if beginning is not None:
                    found[number] = beginning
        return found

    def _plan(self, beginnings: Mapping[int, Beginning]) -> list[StepPart]:
        """Return which requests take part in the next step.

        Those that are generating come first, with one token each, so that a long prompt does not
        hold them up. What room there is then goes to prompts, in the order of their arrival. One
        whose next page another request fills in this step waits for that page.
        """
        room, plan = self._limits.max_tokens, list[StepPart]()
        begun: set[Beginning] = set()
        for request in sorted(self._active.values(), key=lambda request: request.num_waiting > 1):
            count = min(request.num_waiting, room)
            beginning = beginnings.get(request.number)
            if count and beginning not in begun:
                plan.append(StepPart(request, count, []))
                room -= count
                if beginning is not None:
                    begun.add(beginning)
        return plan

    def _with_guesses(self, plan: list[StepPart]) -> list[StepPart]:
        """Return the plan with guesses, where the step and the pages have room for them.

        A request whose logits depend on its tokens has none, for a step knows its tokens alone.
        """
        limits = self._limits
        room = limits.max_tokens - sum(part.num_own for part in plan)
        guessed = []
        for request, count, _ in plan:
            most = min(room, self._num_speculative_tokens, request.most_tokens(limits.longest) - 1)
            is_last = count == request.num_waiting and request.sampling.repetition_penalty == 1
            guesses = request.lookup.propose(request.tokens, most) if is_last and most > 0 else []
            room -= len(guesses)
            guessed.append(StepPart(request, count, guesses))
        lengths = {part.request.slot: part.length for part in guessed}
        return plan if self._pages.first_without(lengths) is not None else guessed

    def _fill(self, plan: list[StepPart]) -> tuple[int, int, dict[int, range]]:
        """Write a step into the arrays.

        Returns
        -------
        int, int
            How many tokens it has, and how many of them are selected.
        dict of int to range
            The rows of the outputs that requests have, by request.
        """
        arrays, end, num_selected = self._arrays, 0, 0
        rows: dict[int, range] = {}
        for part in plan:
            request, count, guesses = part
            start, end, first = end, end + count + len(guesses), request.num_fed
            arrays["tokens"][start:end] = request.tokens[first : first + count] + guesses
            arrays["positions"][start:end] = range(first, part.length)
            arrays["slots"][start:end] = request.slot
            if count == request.num_waiting:
                if request.sampling.repetition_penalty != 1:
                    note_token(arrays, request.slot, request.sampling, request.tokens[-1])
                chosen = range(end - 1 - len(guesses), end)
                selected = range(num_selected, num_selected + len(chosen))
                arrays["selected"][selected.start : selected.stop] = chosen
                rows[request.number] = chosen if self._has_row_per_token else selected
                num_selected = selected.stop
        return end, num_selected, rows

    def _check_room(self, plan: list[StepPart]) -> None:
        """Raise a CapacityError unless there is room for a step."""
        limits = self._limits
        lengths = {part.request.slot: part.length for part in plan}
        full = self._pages.first_without(lengths)
        for request, _, _ in plan:
            number = request.number
            if lengths[request.slot] > limits.max_seq_length:
                raise CapacityError(
                    f"request {number} has come to max_seq_length, {limits.max_seq_length} "
                    "tokens; remove() it, or make a kernel for longer sequences",
                    number,
                )
            if request.slot == full:
                raise CapacityError(
                    f"request {number} needs another page of {limits.page_size} tokens, and the "
                    f"{limits.num_pages} pages are in use; remove() a request, or make a kernel "
                    "with a larger max_num_pages",
                    number,
                )


def checked_request(
    program: Program, tokens: object, max_new_tokens: int | None, sampling: Mapping[str, Any]
) -> tuple[list[int], Sampling]:
    """Return a prompt as a list and how tokens are chosen, if a program takes both.

    Raises
    ------
    TypeError, ValueError
        If the prompt is empty, too long, or not made of the program's tokens, or if a number is out
        of its range.
    """
    how = Sampling(**sampling)
    sampled = [node.inputs["x"] for node in program.nodes if node.kind == "sample"]
    if not sampled and (how.temperature or how.has_edits):
        raise ValueError(
            "the program chooses by argmax; temperature must be 0, without repetition_penalty "
            "and logit_bias"
        )
    if how.logit_bias:
        end = min(program.values[name].columns for name in sampled)
        if max(how.logit_bias) >= end:
            raise ValueError(
                f"tokens of logit_bias must be from 0 to {end - 1}, got {max(how.logit_bias)}"
            )
        if sum(bias == -math.inf for bias in how.logit_bias.values()) == end:
            raise ValueError(f"logit_bias bans all of the {end} tokens; leave one at least")
    return _checked_prompt(program, tokens, max_new_tokens), how


def _checked_prompt(program: Program, tokens: object, max_new_tokens: int | None) -> list[int]:
    given = np.asarray(tokens)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise TypeError(f"the prompt must be a sequence of token ids, got {tokens!r:.80}")
    if not given.size:
        raise ValueError("the prompt is empty; it must have at least one token")
    end = vocabulary(program)
    wrong = given[(given < 0) | (given >= end)]
    if wrong.size:
        raise ValueError(f"tokens must be from 0 to {end - 1}, got {wrong[0]} in the prompt")
    length, most = len(given), program.limits.longest
    new = None if max_new_tokens is None else whole("max_new_tokens", max_new_tokens)
    if length + (new or 1) - 1 > most:  # the last token is not fed
        raise ValueError(
            f"a prompt of {length} tokens{f' and {new} new ones are' if new else ' is'} more than "
            f"max_seq_length and max_num_pages leave room for, {most}"
        )
    return [int(token) for token in given]
