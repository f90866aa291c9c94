"""Ranks that are kernels of one process: a step of one is a step of all, each in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program.records import PER_EDIT, PER_TOKEN, STEP_ARRAYS
from tensor_ops_decode.ranks.communicator import Communicator, Facts
from tensor_ops_decode.ranks.local_team import Team, joined_team

__all__ = ["LocalRanks"]

# The methods of an executable that run steps.
_STEPS = ("run", "run_draft", "run_steps", "profile", "first_nan")
# How many calls a rank may be ahead of another one, for which their results are kept.
_MOST_AHEAD = 4096


class _Result(NamedTuple):
    """The result of a rank in a call of another one.

    The call is the method with its arguments, and what the step was. The value is what it has
    returned, or the error that it has raised, and the outputs are the rows that it has written.
    """

    call: tuple[Hashable, ...]
    value: Any
    outputs: Mapping[str, Array]


class LocalRanks(Communicator):
    """A rank whose others are kernels of the same process.

    The kernel that is called first steps all ranks, and the next call of each other one returns
    what its rank has computed, which is one of its `results` until then. It may be ahead of them by
    many calls. The ranks of a `model` find each other by it, in the order in which they are
    compiled.
    """

    name = "local"

    def __init__(self, rank: int, world_size: int, model: Hashable) -> None:
        self.rank, self.world_size = rank, world_size
        self.num_here = self.num_sharing = world_size
        self.facts: Facts | None = None
        self.executable: Any = None
        self.results: deque[_Result] = deque()
        self._num_windows, self._model = 0, model
        self._joined: Team | None = None  # from compiling on

    def least_of(self, plan: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """Return the least numbers of all ranks, which are planned one after another."""
        plans = [plan(rank) for rank in range(self.world_size)]
        return tuple(map(min, zip(*plans, strict=True)))

    def compiled(self, facts: Callable[[], Facts], compile_program: Callable[[], Any]) -> Any:
        """Return an executable whose first step needs that all ranks are compiled."""
        self.facts = facts()
        self._joined = team = joined_team(self, self._model)
        try:
            self.executable = compile_program()
        except BaseException:
            self.close()
            raise
        if not team.missing():
            team.check_alike()  # which the first step of another rank does too
        return _LocalExecutable(self, team)

    def least(self, number: int, step: Callable[[], str] = str) -> int:
        """Return the number of the rank that runs the step first."""
        call = "least", step()
        with self._team.lock:
            if self.results:
                found: int = self.taken(call).value
                return found
            for each in self._team.members():
                if each is not self:
                    each.keep(_Result(call, number, {}))
            return number

    def keep(self, result: _Result) -> None:
        """Keep a result until this rank makes the call."""
        if len(self.results) == _MOST_AHEAD:
            raise RankError(
                f"rank {self.rank} is {_MOST_AHEAD} calls behind: call its kernel as often as the "
                "others, or in a thread of its own",
                self.rank,
            )
        self.results.append(result)

    def taken(self, call: tuple[Hashable, ...]) -> _Result:
        """Return the next result that was kept, which must be of this call."""
        if self.results[0].call != call:
            raise RankError(
                f"rank {self.rank} is about to run another step than the other ranks have run: "
                "give all ranks the same requests and calls, in the same order",
                self.rank,
            )
        return self.results.popleft()

    def exchange(self, send: Array, receive: Array) -> None:
        """Give a vector to the threads of the other ranks, and get theirs."""
        self._team.exchanges[self.rank].exchange(send, receive)

    def window(self, num_bytes: int) -> Array:
        """Return memory of this process."""
        self._num_windows += 1
        return self._team.window(self._num_windows - 1, num_bytes)

    def while_waiting(self, seconds: float, ranks: tuple[int, ...]) -> None:
        """Raise an error if another rank has failed, or the deadline is over."""
        self._team.while_waiting(seconds, ranks)

    def close(self) -> None:
        """Leave the other ranks, for whom the next step is an error."""
        self.executable = None
        self.results.clear()
        if self._joined is not None:
            self._joined.leave(self)

    @property
    def _team(self) -> Team:
        assert self._joined is not None, "it is not compiled"
        return self._joined


class _LocalExecutable:
    """A rank's executable, whose steps are those of all ranks.

    In its `arrays` nothing changes when another rank is ahead.
    """

    def __init__(self, ranks: LocalRanks, team: Team) -> None:
        self._ranks, self._team = ranks, team
        arrays: Mapping[str, Array] = ranks.executable.arrays
        self.arrays = {name: each.copy() for name, each in arrays.items()}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ranks.executable, name)
        return partial(self._step, name) if name in _STEPS else found

    def close(self) -> None:
        """Free the memory; a step after that is an error."""
        self._ranks.executable.close()

    def _step(self, method: str, *given: Any) -> Any:
        """Run a step on all ranks, unless another rank was the first to run it."""
        ranks, team = self._ranks, self._team
        num_tokens = given[0]
        num_selected = num_tokens if method == "run_steps" else given[1]
        inputs = self._inputs(num_tokens, num_selected)
        if method == "run_draft":  # which reads what the step before it has left
            inputs |= {
                name: each[:num_tokens]
                for name, each in self.arrays.items()
                if name not in STEP_ARRAYS and len(each) == len(self.arrays["tokens"])
            }
        words = b"".join(each.tobytes() for name, each in inputs.items() if name != "page_table")
        call = method, repr(given), words
        with team.lock:
            if not ranks.results:
                self._run(call, inputs, given, num_tokens, num_selected)
            result = ranks.taken(call)
        for name, rows in result.outputs.items():
            self.arrays[name][: len(rows)] = rows
        if isinstance(result.value, BaseException):
            raise result.value
        return result.value

    def _run(
        self,
        call: tuple[Hashable, ...],
        inputs: Mapping[str, Array],
        given: tuple[Any, ...],
        num_tokens: int,
        num_selected: int,
    ) -> None:
        """Run a step on all ranks, and keep the result of each for its own call."""

        def run(member: LocalRanks) -> Any:
            arrays = member.executable.arrays
            for name, each in inputs.items():
                arrays[name][tuple(map(slice, each.shape))] = each
            return getattr(member.executable, str(call[0]))(*given)

        found = self._team.at_once(run, self._ranks)
        for member, value in zip(self._team.members(), found, strict=True):
            outputs = {
                name: each[
                    : num_tokens if len(each) == len(self.arrays["tokens"]) else num_selected
                ]
                for name, each in member.executable.arrays.items()
                if name not in STEP_ARRAYS
            }
            kept = {name: each.copy() for name, each in outputs.items()}
            member.keep(_Result(call, value, kept))

    def _inputs(self, num_tokens: int, num_selected: int) -> dict[str, Array]:
        """Return what a step reads of the arrays."""
        given = {name: self.arrays[name] for name in STEP_ARRAYS if name in self.arrays}
        most_edits = int(np.max(given["num_edits"], initial=0)) if "num_edits" in given else 0
        for name in given.keys() & set(PER_TOKEN):
            given[name] = given[name][:num_tokens]
        given["selected"] = given["selected"][:num_selected]
        for name in PER_EDIT:
            given[name] = given[name][:, :most_edits]
        return given
