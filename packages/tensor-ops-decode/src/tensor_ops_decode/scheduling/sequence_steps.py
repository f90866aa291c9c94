"""Steps of one sequence by itself, in a slot without a request, while all requests wait."""

import math
from collections.abc import Sequence, Set
from typing import Any

from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Limits
from tensor_ops_decode.scheduling.draft_steps import DraftSteps, StepSequence
from tensor_ops_decode.scheduling.kv_cache import PageTable
from tensor_ops_decode.scheduling.logits import token_logprob
from tensor_ops_decode.scheduling.sampling import Sampling, write_sampling
from tensor_ops_decode.scheduling.snapshots import Snapshots

__all__ = ["SequenceSteps"]


class SequenceSteps:
    """Runs steps of a sequence whose pages are free; `snapshots` is None without states.

    The caller takes back the pages of the slot.
    """

    def __init__(
        self,
        slot: int,
        limits: Limits,
        executable: Any,
        pages: PageTable,
        snapshots: Snapshots | None,
        draft: DraftSteps | None,
    ) -> None:
        self._slot, self._limits, self._executable = slot, limits, executable
        self._pages, self._snapshots, self._draft = pages, snapshots, draft

    def logprobs(self, tokens: Sequence[int], first: int, logits: Array) -> list[float]:
        """Return the log-probability of each token from one on; `logits` are those of steps."""
        limits, end = self._limits, len(tokens) - 1
        arrays, found, start = self._executable.arrays, list[float](), 0
        write_sampling(arrays, self._slot, Sampling(), [])
        while start < end:
            most = limits.max_selected if start + 1 >= first else first - 1 - start
            count = min(most, limits.max_tokens, end - start)
            num_selected = count if start + 1 >= first else 0
            arrays["selected"][:num_selected] = range(num_selected)
            self._run(tokens, range(start, start + count), self._slot, num_selected)
            following = tokens[start + 1 :]
            for row, token in zip(logits[:num_selected], following, strict=False):
                found.append(token_logprob(row, token, 0).logprob)
            start += count
            if found and math.isnan(sum(found)):
                raise LogitsError(
                    f"the logits after {start} tokens of the prompt are NaN: the weights are "
                    "damaged, or numbers became too large. Get the model's files again, or try "
                    "cache_dtype='float32'",
                    -1,
                )
        return found

    def read_prompt(self, tokens: Sequence[int]) -> tuple[Array, Array | None]:
        """Return what the caches have of tokens that fill whole pages: a row of bytes for each.

        Where the program has states, there is a row for that after the tokens. What the caches do
        not have is computed, and can be found after that.
        """
        slot = state = self._slot
        # As of a prompt that goes on, whose last token counts too.
        full = self._pages.find(slot, [*tokens, 0])
        if self._snapshots is not None:
            full = full[: self._snapshots.num_to_last([page.number for page in full])]
            state = self._snapshots.find(full[-1].number) if full else slot
        start = self._pages.share(slot, full)
        while start < len(tokens):
            end = min(start + self._limits.max_tokens, len(tokens))
            self._run(tokens, range(start, end), state, 0)
            if self._draft is not None:
                self._draft.guess([StepSequence(tokens, start, range(end - start), slot, end)])
            start, state = end, slot
        self._pages.note_full(slot, tokens, len(tokens))
        rows: Array = self._executable.read_pages(self._page_numbers(len(tokens)))
        if self._snapshots is None:
            return rows, None
        row: Array = self._executable.read_state(state)
        return rows, row

    def write_prompt(
        self, tokens: Sequence[int], rows: Array, state: Array | None, in_use: Set[int]
    ) -> None:
        """Give the caches what `read_prompt` has returned; some states are in use by requests."""
        number = None
        if self._snapshots is not None:
            number = self._snapshots.take(in_use, lambda: self._pages.known)
            if number is None:
                raise ValueError("all snapshots are in use; make a kernel with more of them")
        self._pages.hold({self._slot: len(tokens)})
        self._executable.write_pages(self._page_numbers(len(tokens)), rows)
        if number is not None:
            self._executable.write_state(number, state)
        self._pages.note_full(self._slot, tokens, len(tokens))
        if self._snapshots is not None and number is not None:
            self._snapshots.keep(self._pages.number_of(self._slot, len(tokens)), number)

    def _page_numbers(self, length: int) -> list[int]:
        count = length // self._limits.page_size
        numbers: list[int] = self._executable.arrays["page_table"][self._slot, :count].tolist()
        return numbers

    def _run(self, tokens: Sequence[int], places: range, state: int, num_selected: int) -> None:
        """Run a step of some of the tokens, the first of which begins with a state."""
        self._pages.hold({self._slot: places.stop})
        arrays, count = self._executable.arrays, len(places)
        arrays["tokens"][:count] = tokens[places.start : places.stop]
        arrays["positions"][:count] = places
        arrays["slots"][:count] = self._slot
        if self._snapshots is not None and "state_before" in arrays:
            arrays["state_before"][:count] = arrays["state_after"][:count] = self._slot
            arrays["state_before"][0] = state
        self._executable.run(count, num_selected)
