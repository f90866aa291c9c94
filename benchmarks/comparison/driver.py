"""Measuring every case, the peers taking turns."""

import contextlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.cases import Case, moved_bytes
from comparison.process import PeerProcess
from comparison.record import Record
from comparison.timing import calls_that_fill, is_short
from harness.process import WorkerLostError

__all__ = ["FLOOR", "PEERS", "measure", "ask", "rounds_in_time", "take_turns"]

PEERS = tuple(sorted(path.stem for path in Path(__file__).parents[1].glob("peers/[!_]*.py")))
# The copy of as many bytes, which has no result to check.
FLOOR = "copy"

# A slow call has fewer rounds, but these at the least.
FEWEST_ROUNDS = 3
SECONDS_PER_ENTRY = 0.15

# Bytes of arrays that all workers together hold at a time; the libraries come on top.
MOST_BYTES = 7.5e9


def measure(
    cases: Sequence[Case], peers: Iterable[str], record: Record, rounds: int
) -> Generator[Case]:
    """Measure cases into a record, yielding each when its turn comes."""
    workers: list[PeerProcess] = []
    threads = None
    with contextlib.ExitStack() as stack:
        for case in cases:
            yield case
            if case.threads != threads:
                stack.close()
                threads = case.threads
                started = [stack.enter_context(PeerProcess(name, threads)) for name in peers]
                workers = [each for each in started if record.add_peer(each)]
            _measure_case(case, workers, record, rounds)


@dataclass
class Turn:
    """The work of one entry in each round."""

    entry: str
    worker: PeerProcess
    way: str
    calls: int
    rounds: int


def _measure_case(case: Case, workers: list[PeerProcess], record: Record, rounds: int) -> None:
    entries: dict[str, dict[str, Any]] = {}
    is_tight = moved_bytes(case) * len(workers) > MOST_BYTES
    turns: list[Turn] = []
    for worker in workers:
        turns += _plan(case, worker, entries, record, rounds, is_tight)
    take_turns(case, turns, entries, is_tight)
    for worker in workers:
        ask(worker, {"ask": "drop"})
    _check(case, [each for each in workers if _has_times(entries, each)], record)
    record.add_cell(case, entries)


def _plan(
    case: Case,
    worker: PeerProcess,
    entries: dict[str, dict[str, Any]],
    record: Record,
    rounds: int,
    is_tight: bool,
) -> list[Turn]:
    """Let a worker get ready; return the turns that it takes, one for each of its ways."""
    answer = ask(worker, {"ask": "prepare", "case": case.as_dict()})
    if is_tight:
        ask(worker, {"ask": "drop"})
    if "unsupported" in answer:
        record.add_unsupported(case, worker.name, answer["unsupported"])
    elif "failure" in answer:
        entries[worker.name] = answer
    turns = []
    for way, plan in answer.get("ways", {}).items():
        entry = f"{worker.name} {way}".rstrip()
        entries[entry] = {"calls": plan["calls"], "seconds": []}
        own = rounds_in_time(plan["calls"] * plan["seconds"], rounds)
        turns.append(Turn(entry, worker, way, plan["calls"], own))
    return turns


def rounds_in_time(seconds: float, rounds: int) -> int:
    """Return how many rounds a call of some length takes part in."""
    return min(rounds, max(FEWEST_ROUNDS, int(SECONDS_PER_ENTRY / seconds)))


def take_turns(
    case: Case, turns: list[Turn], entries: dict[str, dict[str, Any]], is_tight: bool
) -> None:
    """Time every entry in each round, the order turning round each time.

    Where memory is tight, a worker has its arrays during its turns only.
    """
    again = {"ask": "prepare", "case": case.as_dict(), "is_known": True}
    for number in range(max((turn.rounds for turn in turns), default=0)):
        for turn in turns[:: -1 if number % 2 else 1]:
            if number >= turn.rounds or "failure" in entries[turn.entry]:
                continue
            if is_tight:
                ask(turn.worker, again)
            answer = ask(turn.worker, {"ask": "time", "way": turn.way, "calls": turn.calls})
            if is_tight:
                ask(turn.worker, {"ask": "drop"})
            if "failure" in answer:
                entries[turn.entry] = answer
            else:
                entries[turn.entry]["seconds"].append(answer["seconds"])
                if is_short(turn.calls, answer["seconds"]):  # what was planned by was held up
                    turn.calls = calls_that_fill(answer["seconds"])
                    entries[turn.entry]["calls"] = turn.calls


def _check(case: Case, workers: list[PeerProcess], record: Record) -> None:
    """Measure the errors of what was timed, once for all shapes."""
    for worker in workers:
        if worker.name == FLOOR or record.has_errors(case, worker.name):
            continue
        answer = ask(worker, {"ask": "errors", "case": case.as_dict()})
        for way, error in answer.get("errors", {}).items():
            record.add_error(case, f"{worker.name} {way}".rstrip(), error)


def _has_times(entries: dict[str, dict[str, Any]], worker: PeerProcess) -> bool:
    return any(
        key.partition(" ")[0] == worker.name and entry.get("seconds")
        for key, entry in entries.items()
    )


def ask(worker: PeerProcess, request: dict[str, Any]) -> dict[str, Any]:
    """Return an answer; that of a process which is gone is a failure, and the next one starts."""
    try:
        return worker.ask(request)
    except WorkerLostError as reason:
        worker.restart()
        return {"failure": str(reason)}
