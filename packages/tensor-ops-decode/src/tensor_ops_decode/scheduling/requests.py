"""Requests: the sequences that a kernel continues, and which of their tokens a step takes."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensor_ops_decode.errors import CapacityError, LogitsError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program, State
from tensor_ops_decode.program.phases import phases_of
from tensor_ops_decode.ranks.communicator import ONE_RANK, Communicator
from tensor_ops_decode.scheduling.chosen_tokens import chosen_tokens
from tensor_ops_decode.scheduling.draft_steps import DraftSteps, sequences_of
from tensor_ops_decode.scheduling.kv_cache import Beginning, PageTable
from tensor_ops_decode.scheduling.logits import logits_error, token_logprob
from tensor_ops_decode.scheduling.prompt_lookup import accepted
from tensor_ops_decode.scheduling.request import Request, StepPart, described
from tensor_ops_decode.scheduling.sampling import note_last_token, write_sampling
from tensor_ops_decode.scheduling.sequence_steps import SequenceSteps
from tensor_ops_decode.scheduling.snapshots import Snapshots, length_in_common
from tensor_ops_decode.scheduling.step_times import StepProfile, StepTimes

__all__ = ["Requests", "last_of_each"]

# While tokens are generated, a snapshot of the state is kept about so often: the next turn of a
# conversation goes on from it.
_TOKENS_BETWEEN_SNAPSHOTS = 64


class _PreparedStep(NamedTuple):
    """A step that is in the arrays of the executable, and how often it may run in a row.

    The counts are of its tokens, and of those that are selected. The rows of the outputs are those
    that requests have. There are time and room for `num_steps`, which differ by the chosen tokens
    alone. Where the program has states, `states` are those that each request's tokens leave.
    """

    plan: list[StepPart]
    counts: tuple[int, int]
    rows: Mapping[int, range]
    num_steps: int
    states: Mapping[int, list[int]]


class Requests:
    """The requests of an executable: their slots in it, their pages, and its steps.

    The values `logits` and `tokens` hold the logits of a step, and the tokens that it chose. The
    ranks have the same requests, and run the same steps. `were_added` says whether there has been a
    request since the last `clear`.
    """

    def __init__(
        self,
        program: Program,
        executable: Any,
        logits: str,
        tokens: str,
        ranks: Communicator = ONE_RANK,
    ) -> None:
        self._program, self._limits = program, program.limits
        caches = program.caches.values()
        self._has_state = any(isinstance(cache, State) for cache in caches)
        guesses, slots = program.limits.guesses_per_request, program.limits.max_requests
        # An executor of states that steps do not name has those of the slots alone.
        self._names_states = self._has_state and "state_before" in executable.arrays
        extra = program.limits.extra_states if self._names_states else 0
        # Behind a wrong guess a request goes on from the state before it.
        if self._has_state and extra < slots * guesses:
            guesses = 0
        self._most_guesses = guesses
        # Without a draft, guesses are what followed the last tokens before.
        draft = program.draft if guesses and hasattr(executable, "run_draft") else None
        self._draft = None if draft is None else DraftSteps(draft, executable)
        states = range(slots * (1 + guesses), slots + extra)
        self._states_of_snapshots = states if self._has_state else range(0)
        # A contiguous cache belongs to its slot.
        is_paged = all(cache.paged for cache in caches if not isinstance(cache, State))
        self._shares_pages = is_paged and (not self._has_state or bool(states))
        self._executable, self._ranks = executable, ranks
        self._arrays: Mapping[str, Array] = executable.arrays
        self._logits: Array = self._arrays[logits]
        self._name_of_tokens = tokens
        # Read and written one by one: after a step, which leaves the processor's caches full of
        # weights, that takes less time than NumPy's indexing.
        self._inputs = tuple(
            memoryview(self._arrays[name]) for name in ("tokens", "positions", "slots", "selected")
        )
        names = ("state_before", "state_after") if self._names_states else ()
        self._states = tuple(memoryview(self._arrays[name]) for name in names)
        self._tokens = memoryview(self._arrays[tokens].reshape(-1))
        self._has_row_per_token = program.values[tokens].rows == "tokens"
        self._numbers = itertools.count()
        self._times = StepTimes()
        self.clear()

    def clear(self) -> None:
        """Forget all requests; their numbers are not used again."""
        limits, table = self._limits, self._arrays["page_table"]
        # In this order: what is forgotten goes before the pages that it names.
        self._active: dict[int, Request] = {}
        self._ended: dict[int, Request] = {}
        self._rows: dict[int, int] = {}  # of the last step, by request
        self._snapshots = Snapshots(self._states_of_snapshots)
        self._pages = PageTable(table, limits.num_pages, limits.page_size)
        self.were_added = False

    @property
    def active(self) -> tuple[int, ...]:
        """The numbers of the requests that have not ended, in the order of their arrival."""
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

    def add(self, request: Request, announce: Callable[[int], object] | None = None) -> int:
        """Add a request, whose prompt `checked_request` has returned; return its number."""
        self._check_slots()
        request.number = next(self._numbers)
        if announce is not None:
            announce(request.number)
        request.slot = self._free_slot()
        write_sampling(self._arrays, request.slot, request.sampling_of_steps, request.tokens)
        self.were_added = True
        self._active[request.number] = request
        return request.number

    def _check_slots(self) -> None:
        """Raise a ValueError unless there is a slot without a request."""
        if len(self.active) == self._limits.max_requests:
            raise ValueError(
                f"{len(self._active)} requests are active, which is max_num_batched_requests; "
                "call the kernel until one ends, or remove() one"
            )

    def _free_slot(self) -> int:
        used = {each.slot for each in self._active.values()}
        return min(set(range(self._limits.max_requests)) - used)

    def prompt_logprobs(self, tokens: Sequence[int], first: int) -> list[float]:
        """Return the log-probability of each token of a sequence, from one on.

        The steps are of this sequence alone, in a slot without a request.
        """
        steps, self._rows = self._steps_of_one(len(tokens) - 1), {}
        found = steps.logprobs(tokens, first, self._logits)
        self.retire()  # takes back the pages
        return found

    @property
    def keeps_prompts(self) -> bool:
        """Whether what the caches have of a prompt can be read and written."""
        return self._shares_pages and hasattr(self._executable, "read_pages")

    def read_prompt(self, tokens: Sequence[int]) -> tuple[Array, Array | None]:
        """Return what the caches have of tokens that fill whole pages, as `SequenceSteps` does."""
        steps, self._rows = self._steps_of_one(len(tokens)), {}
        found = steps.read_prompt(tokens)
        self.retire()  # takes back the pages, which can be found
        return found

    def write_prompt(self, tokens: Sequence[int], rows: Array, state: Array | None) -> None:
        """Give the caches what `read_prompt` has returned of these tokens, perhaps elsewhere."""
        in_use = {request.state for request in self._active.values()}
        self._steps_of_one(len(tokens)).write_prompt(tokens, rows, state, in_use)
        self.retire()

    def _steps_of_one(self, length: int) -> SequenceSteps:
        """Return what runs steps of one sequence, which may come to a length."""
        self._check_slots()
        slot = self._free_slot()
        if self._pages.first_without({slot: length}) is not None:
            raise ValueError(
                f"a prompt of {length} tokens needs {self._pages.pages_for(length)} pages, and "
                f"{self._pages.num_free} are free; remove() a request, or make a kernel with a "
                "larger max_num_pages"
            )
        snapshots = self._snapshots if self._has_state else None
        return SequenceSteps(
            slot, self._limits, self._executable, self._pages, snapshots, self._draft
        )

    def find(self, number: int) -> Request:
        """Return a request, active or ended."""
        is_number = isinstance(number, (int, np.integer))
        found = (self._active.get(number) or self._ended.get(number)) if is_number else None
        if found is None:
            there_are = ", ".join(map(str, [*self._active, *self._ended])) or "none"
            raise ValueError(f"there is no request {number!r}; there are {there_are}")
        return found

    def remove(self, number: int, missing_ok: bool = False) -> None:
        """Forget a request, active or ended."""
        if not missing_ok:
            self.find(number)
        self._ended.pop(number, None)
        self._active.pop(number, None)
        self.retire()

    def retire(self) -> None:
        """Take back the slots and the pages of requests that have ended or are removed.

        An interrupt may have come before the pages of an earlier one were taken back.
        """
        for number, request in list(self._active.items()):
            if request.finish_reason is not None:
                self._ended[number] = request
                del self._active[number]
        for slot in self._pages.slots - {request.slot for request in self._active.values()}:
            self._pages.release(slot)

    def logits(self, number: int) -> Array:
        """Return a copy of the logits that a request has got from the last step."""
        request = self.find(number)
        if request.logits is not None:
            return request.logits.copy()
        if number not in self._rows:
            raise ValueError(f"request {number} has got no token in the last step")
        logits: Array = self._logits[self._rows[number]].copy()
        return logits

    @property
    def waiting(self) -> tuple[int, ...]:
        """The numbers of the active requests that must be given tokens before they go on."""
        return tuple(each for each in self.active if self._active[each].needs_token)

    def run(self, most_steps: int, max_seconds: float) -> tuple[int, dict[int, list[int]]]:
        """Run steps of all active requests in one call of the executable.

        Parameters
        ----------
        most_steps : int
        max_seconds : float
            No step but the first begins that would end later, if it took as long as those before.

        Returns
        -------
        int
            How many were run: one, where something has to be done after it.
        dict of int to list of int
            The tokens of each request that has got some.

        Raises
        ------
        CapacityError
            If there is no room for a step; nothing has changed then.
        LogitsError
            If logits chose no token: the request has ended, and the others have their tokens.
        RuntimeError
            If there are no active requests.
        """
        step = self._begin(most_steps, max_seconds)
        num_tokens, num_steps = step.counts[0], step.num_steps
        start = time.perf_counter()
        if num_steps == 1:
            self._executable.run(*step.counts)
            chosen = self._chosen(step)
        else:
            ends = [tuple(part.request.end_tokens) for part in step.plan]
            tokens = self._name_of_tokens
            by_step: Array = self._executable.run_steps(num_tokens, num_steps, tokens, ends)
            num_steps, chosen = len(by_step), by_step.T.tolist()
        if num_tokens == len(step.plan):  # one token of each
            self._times.note(num_tokens, num_steps, time.perf_counter() - start)
        return num_steps, self._end(step, chosen)

    def profile(self) -> StepProfile:
        """Run one step, and return how long each node took too."""
        step = self._begin(1, 0.0)
        times = self._executable.profile(*step.counts)
        phases = phases_of(self._executable, times["work"].shape[1])
        return StepProfile(
            last_of_each(self._end(step, self._chosen(step))), **times, phases=phases
        )

    def _begin(self, most_steps: int, max_seconds: float) -> _PreparedStep:
        """Write the next step into the arrays."""
        self.retire()
        for request in self._active.values():
            if request.is_in_step and self._has_state:  # the step may have changed its state
                self._pages.release(request.slot)
                request.begin_anew()
        if not self._shares_pages:
            plan = self._plan({})
        elif self._has_state:
            self._share_snapshots()
            plan = self._plan({})
        else:
            plan = self._plan(self._share_pages())
        if not plan:
            what = "active: add one with add_request(), or reset()"
            if self.waiting:
                what = f"ready for a step: extend() those that wait for tokens, {[*self.waiting]}"
            raise RuntimeError(f"no request is {what}")
        self._check_room(plan)
        if self._most_guesses:
            plan = self._with_guesses(plan)
        most_steps = self._times.steps_within(len(plan), max_seconds, most_steps)
        # Each rank has measured other times, and would hold other pages.
        most_steps = self._ranks.least(most_steps, lambda: described(plan))
        num_steps = self._num_steady_steps(most_steps)
        self._pages.hold({part.request.slot: part.length + num_steps - 1 for part in plan})
        states = self._states_after(plan) if self._names_states else {}
        counts, rows = self._fill(plan, states)
        self._rows = {}
        for part in plan:
            part.request.is_in_step = True
        return _PreparedStep(plan, counts, rows, num_steps, states)

    def _check_room(self, plan: list[StepPart]) -> None:
        """Raise a CapacityError unless there is room for a step."""
        limits, lengths = self._limits, {part.request.slot: part.length for part in plan}
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

    def _num_steady_steps(self, most: int) -> int:
        """Return how many steps can run in a row: each is fed what the one before has chosen."""
        requests, limits = self._active.values(), self._limits
        is_steady = not self._most_guesses and all(each.is_steady for each in requests)
        if not is_steady or not hasattr(self._executable, "run_steps"):
            return 1
        most = min(most, *(each.most_tokens(limits.longest) for each in requests))

        if self._shares_pages and self._has_state:
            most = min(most, *(self._steps_to_snapshot(each) for each in requests))

        def fits(steps: int) -> bool:
            lengths = {each.slot: each.num_fed + steps for each in requests}
            return self._pages.first_without(lengths) is None

        while most > 1 and not fits(most):
            most //= 2
        return max(most, 1)

    def _chosen(self, step: _PreparedStep) -> list[list[int]]:
        """Return the tokens of each part of a step, as far as the guesses before them are right."""
        of_step = self._tokens, self._logits, self._arrays
        return [
            accepted(
                chosen_tokens(request, count, step.rows.get(request.number, range(0)), *of_step),
                guesses,
                request.end_tokens,
            )
            for request, count, guesses in step.plan
        ]

    def _end(self, step: _PreparedStep, chosen: list[list[int]]) -> dict[int, list[int]]:
        """Take the tokens that were chosen for each part, and return those of each request."""
        errors, firsts = [], [part.request.num_fed for part in step.plan]
        for (request, count, guesses), tokens in zip(step.plan, chosen, strict=True):
            of_request = step.rows.get(request.number, range(0))
            if tokens:  # of several steps, the last one has left its rows
                self._rows[request.number] = of_request[: len(tokens)][-1]
            if guesses:
                request.num_accepted += len(tokens) - 1
            is_without_token = bool(tokens) and tokens[-1] < 0
            if is_without_token:
                del tokens[-1]
                # An interrupt before the whole error leaves a request that has ended.
                request.error = LogitsError("its logits choose no token", request.number)
            if request.num_likeliest is not None:
                request.logprobs[len(request.generated) :] = [
                    token_logprob(self._logits[row], token, request.num_likeliest)
                    for row, token in zip(of_request, tokens, strict=False)
                ]
            if tokens and not request.chooses:
                request.logits = self._logits[self._rows[request.number]].copy()
                tokens.clear()
            new = count + max(len(tokens) - 1, 0)
            if self._names_states:
                state = step.states[request.number][min(new, count + len(guesses)) - 1]
                request.kept_state = (request.num_fed + new, state)
            first = request.num_fed
            request.advance(count, tokens)
            if is_without_token:
                request.error = logits_error(self._program, self._executable, request, *step.counts)
                errors.append(request.error)
            elif self._shares_pages:
                self._pages.note_full(request.slot, request.tokens, request.num_fed)
                if self._has_state:
                    self._keep_snapshots(request, first, step.states[request.number])
        if self._draft is not None:
            self._guess(self._draft, step.plan, firsts)
        self.retire()
        if errors:
            raise errors[0]
        tokens_of = zip(step.plan, chosen, strict=True)
        return {part.request.number: tokens for part, tokens in tokens_of if tokens}

    def _guess(self, draft: DraftSteps, plan: list[StepPart], firsts: list[int]) -> None:
        """Let the draft guess what follows the tokens of a step, which began at these positions."""
        most, longest = dict[int, int](), self._limits.longest
        for request, _, _ in plan:
            is_asked = request.finish_reason is None and request.may_guess
            if is_asked and request.num_waiting == 1:
                most[request.slot] = min(self._most_guesses, request.most_tokens(longest) - 1)
        by_slot = {part.request.slot: part.request for part in plan}
        lengths = {slot: by_slot[slot].num_fed + count - 1 for slot, count in most.items()}
        # Each request must find a page for its next token.
        if self._pages.num_missing(lengths) + len(self._active) <= self._pages.num_free:
            self._pages.hold(lengths)
        else:
            most = {slot: min(count, 1) for slot, count in most.items()}
        for part, guesses in zip(plan, draft.guess(sequences_of(plan, firsts, most)), strict=True):
            part.request.drafted = len(part.request.tokens), guesses

    def _share_pages(self) -> dict[int, Beginning]:
        """Let prompts skip what the caches have; return what each will fill its next page with."""
        found = {}
        for number, request in self._active.items():
            if request.num_waiting > 1:
                full = self._pages.find(request.slot, request.tokens)
                request.skip_to(self._pages.share(request.slot, full))
                beginning = self._pages.next_beginning(request.slot, request.tokens)
                if beginning is not None:
                    found[number] = beginning
        return found

    def _share_snapshots(self) -> None:
        """Let prompts go on from the last snapshot that fits, and note which they wait for.

        Pages that are known behind it show where prompts part: the next one that comes there takes
        a snapshot for others.
        """
        size = self._limits.page_size
        for request in self._active.values():
            if request.num_waiting < 2:
                continue
            full = self._pages.find(request.slot, request.tokens)
            count = self._snapshots.num_to_last([page.number for page in full])
            if count * size > request.num_fed:
                self._pages.share(request.slot, full[:count])
                state = self._snapshots.find(full[count - 1].number)
                request.kept_state = (count * size, state)
                request.skip_to(count * size)
            if not request.snapshot_lengths:  # it is new
                # The next turn of a conversation may leave out the last tokens of this one.
                last = (request.prompt_length - 1) // size * size
                request.snapshot_lengths |= {len(full) * size, last, last - size}
                self._look_for_one_to_follow(request)

    def _look_for_one_to_follow(self, request: Request) -> None:
        """Let a prompt wait where one before it is to compute what both begin with."""
        size = self._limits.page_size
        for other in itertools.takewhile(lambda each: each is not request, self._active.values()):
            # The last token does not count, for it must go through the model.
            length = length_in_common(request.tokens[:-1], other.tokens, size)
            waits = request.waits_for[1] if request.waits_for is not None else request.num_fed
            if length > max(other.num_fed, waits):
                other.snapshot_lengths.add(length)
                request.waits_for = other, length

    def _is_waiting(self, request: Request) -> bool:
        """Return whether another request is yet to compute what this one begins with."""
        if request.waits_for is not None:
            other, length = request.waits_for
            if other.number in self._active and other.num_fed < length:
                return True
            request.waits_for = None
        return False

    def _takes_snapshot(self, request: Request, length: int) -> bool:
        """Return whether a request is to keep its state after so many tokens."""
        is_of_answer = length > request.prompt_length
        is_regular = is_of_answer and length % self._tokens_between_snapshots == 0
        return is_regular or length in request.snapshot_lengths

    @property
    def _tokens_between_snapshots(self) -> int:
        """How many tokens are generated from one snapshot to the next, in whole pages."""
        size = self._limits.page_size
        return -(-_TOKENS_BETWEEN_SNAPSHOTS // size) * size

    def _steps_to_snapshot(self, request: Request) -> int:
        """Return how many steps there are before the next one that takes a snapshot, at least 1."""
        between, fed = self._tokens_between_snapshots, request.num_fed
        wanted = (length for length in request.snapshot_lengths if length > fed)
        return max(min(fed - fed % between + between, *wanted, 2**31) - 1 - fed, 1)

    def _states_after(self, plan: list[StepPart]) -> dict[int, list[int]]:
        """Return the state that each token leaves: of its slot, of a guess, or a snapshot's."""
        slots, after = self._limits.max_requests, dict[int, list[int]]()
        in_use = {request.state for request in self._active.values()}
        for request, count, guesses in plan:
            first_guess = slots + request.slot * self._most_guesses
            states = [request.slot] * count + [first_guess + each for each in range(len(guesses))]
            for index in range(len(states)) if self._shares_pages else ():
                if self._takes_snapshot(request, request.num_fed + index + 1):
                    state = self._snapshots.take(in_use, lambda: self._pages.known)
                    if state is not None:
                        states[index] = state
                        in_use.add(state)
            after[request.number] = states
        return after

    def _keep_snapshots(self, request: Request, first: int, states: list[int]) -> None:
        """Note the snapshots of a step, in which a request had tokens from the `first` on."""
        for length, state in enumerate(states, first + 1):
            if state not in self._states_of_snapshots or length > request.num_fed:
                continue
            page = self._pages.number_of(request.slot, length)
            is_own = self._snapshots.keep(page, state)
            if is_own and length > request.prompt_length and page != request.snapshot_of_answer:
                self._snapshots.forget(request.snapshot_of_answer)
                request.snapshot_of_answer = page

    def _plan(self, beginnings: Mapping[int, Beginning]) -> list[StepPart]:
        """Return which requests take part in the next step.

        Requests that are generating come first, with one token each, so that a long prompt does not
        hold them up. The room that is left goes to prompts, in the order of their arrival. One
        whose next page another request fills in this step waits for that page.
        """
        room, plan = self._limits.max_tokens, list[StepPart]()
        begun: set[Beginning] = set()
        for request in sorted(self._active.values(), key=lambda request: request.num_waiting > 1):
            count = 0 if self._is_waiting(request) else min(request.num_waiting, room)
            beginning = beginnings.get(request.number)
            if count and beginning not in begun:
                plan.append(StepPart(request, count, []))
                room -= count
                if beginning is not None:
                    begun.add(beginning)
        return plan

    def _with_guesses(self, plan: list[StepPart]) -> list[StepPart]:
        """Return the plan with guesses, where the step and the pages have room for them."""
        limits = self._limits
        room = limits.max_tokens - sum(part.num_own for part in plan)
        guessed = []
        for request, count, _ in plan:
            most = min(room, self._most_guesses, request.most_tokens(limits.longest) - 1)
            is_last = count == request.num_waiting and request.may_guess
            guesses = request.guesses(most, self._draft is None) if is_last and most > 0 else []
            room -= len(guesses)
            guessed.append(StepPart(request, count, guesses))
        lengths = {part.request.slot: part.length for part in guessed}
        return plan if self._pages.first_without(lengths) is not None else guessed

    def _fill(
        self, plan: list[StepPart], states: Mapping[int, list[int]]
    ) -> tuple[tuple[int, int], dict[int, range]]:
        """Write a step into the arrays; return its counts and rows as in `_PreparedStep`."""
        (tokens, positions, slots, indices), end, num_selected = self._inputs, 0, 0
        rows: dict[int, range] = {}
        for part in plan:
            request, count, guesses = part
            start, end, first = end, end + count + len(guesses), request.num_fed
            given = request.tokens[first : first + count] + guesses
            for index, token in enumerate(given):
                tokens[start + index] = token
                positions[start + index] = first + index
                slots[start + index] = request.slot
            if states:
                of_request = states[request.number]
                for index, state in enumerate(of_request):
                    before = of_request[index - 1] if index else request.state
                    for array, number in zip(self._states, (before, state), strict=True):
                        array[start + index] = number
            if count == request.num_waiting:
                if (how := request.sampling).has_penalties:
                    note_last_token(self._arrays, request.slot, how, request.tokens)
                chosen = range(end - 1 - len(guesses), end)
                selected = range(num_selected, num_selected + len(chosen))
                for index, row in zip(selected, chosen, strict=True):
                    indices[index] = row
                rows[request.number] = chosen if self._has_row_per_token else selected
                num_selected = selected.stop
        return (end, num_selected), rows


def last_of_each(tokens: Mapping[int, list[int]]) -> dict[int, int]:
    """Return the last token of each request."""
    return {number: each[-1] for number, each in tokens.items()}
