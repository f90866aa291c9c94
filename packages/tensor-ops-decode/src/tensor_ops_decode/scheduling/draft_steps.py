"""Guesses of the next tokens by the draft of a program, which a step then checks.

Tested by tests/decode/scheduling/test_drafts.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tensor_ops_decode.program import Draft
from tensor_ops_decode.scheduling.request import StepPart

__all__ = ["DraftSteps", "StepSequence", "sequences_of"]


class StepSequence(NamedTuple):
    """A sequence of which a step has had tokens.

    Attributes
    ----------
    tokens : sequence of int
        All that are known, those that the step has chosen among them.
    first : int
        The position of the first one that the step has had.
    rows : range
        The rows that the step had for them, of wrong guesses too.
    slot : int
    num_fed : int
        How many have been through the model.
    end_tokens : set of int
        None is guessed behind one of these.
    most : int
        How many guesses are wanted; the caches must have room for them.
    """

    tokens: Sequence[int]
    first: int
    rows: range
    slot: int
    num_fed: int
    end_tokens: frozenset[int] = frozenset()
    most: int = 0


class DraftSteps:
    """Runs the draft steps of an executable.

    The layer that guesses has keys and values of its own, made of each token and of what the model
    has said before it. It goes on from its own result for guesses behind the first: those keys and
    values are made again, once the model has had these tokens.
    """

    def __init__(self, draft: Draft, executable: Any) -> None:
        arrays = executable.arrays
        self._executable, self._arrays = executable, arrays
        self._hidden, self._next_hidden = arrays[draft.hidden], arrays[draft.next_hidden]
        self._guessed = arrays[draft.tokens].reshape(-1)

    def guess(self, sequences: Sequence[StepSequence]) -> list[list[int]]:
        """Return guesses of what follows each of the sequences of the last step.

        The arrays must be as that step has left them. They are not kept.
        """
        tokens, positions, slots, selected = (
            self._arrays[name] for name in ("tokens", "positions", "slots", "selected")
        )
        guesses: list[list[int]] = [[] for _ in sequences]
        going = [index for index, each in enumerate(sequences) if each.most > 0]
        for each in sequences:
            # What follows a wrong guess is not known, and is not looked at.
            following = each.tokens[each.first + 1 : each.first + 1 + len(each.rows)]
            padding = [each.tokens[-1]] * (len(each.rows) - len(following))
            tokens[each.rows.start : each.rows.stop] = [*following, *padding]
        for row, index in enumerate(going):
            each = sequences[index]
            selected[row] = each.rows[each.num_fed - 1 - each.first]
        num_tokens = sum(len(each.rows) for each in sequences)
        while True:
            self._executable.run_draft(num_tokens, len(going))
            chosen, rows, left = self._guessed[: len(going)].tolist(), [], []
            for row, (index, token) in enumerate(zip(going, chosen, strict=True)):
                each, found = sequences[index], guesses[index]
                if token >= 0:  # NaN chooses none
                    found.append(token)
                if token >= 0 and token not in each.end_tokens and len(found) < each.most:
                    rows.append(row)
                    left.append(index)
            if not left:
                return guesses
            num_tokens, going = len(left), left
            self._hidden[:num_tokens] = self._next_hidden[rows]
            for row, index in enumerate(going):
                each, found = sequences[index], guesses[index]
                tokens[row], slots[row], selected[row] = found[-1], each.slot, row
                positions[row] = each.num_fed - 1 + len(found)


def sequences_of(
    plan: Sequence[StepPart], firsts: Sequence[int], most: Mapping[int, int]
) -> list[StepSequence]:
    """Return the sequences of a step, which began at these positions.

    `most` has for slots how many guesses are wanted.
    """
    found, end = [], 0
    for (request, count, guesses), first in zip(plan, firsts, strict=True):
        rows = range(end, end + count + len(guesses))
        end, slot = rows.stop, request.slot
        of = request.tokens, first, rows, slot, request.num_fed, request.end_tokens
        found.append(StepSequence(*of, most.get(slot, 0)))
    return found
