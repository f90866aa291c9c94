"""Measuring which backend is the fastest, for the preferred backend ``fastest``.

>>> from tensor_ops import benchmark, tuning
>>> entry = tuning.measure(benchmark.Case("silu", (2, 8)), ["python"], seconds=0)
>>> list(entry.seconds), entry.size
(['python'], 16)
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from tensor_ops import benchmark, machine, timing
from tensor_ops.benchmark import Case, Result
from tensor_ops.config.tuning_table import Entry, Table, backend_facts, machine_facts

__all__ = ["SECONDS", "SHAPES", "measure", "table_of"]

# The norm of a head, one token, and two prompts, at the hidden size of a 7B model. Larger arrays
# go by the largest of these: there, what counts for every backend is how it moves memory.
SHAPES = ((1, 128), (1, 4096), (16, 4096), (128, 4096))
# For each case, so that all cases together take about a minute.
SECONDS = 0.05
# A backend that is slower than the fastest by this factor has only the rounds of an interval.
FAR_TOO_SLOW = 3.0


def measure(case: Case, names: Sequence[str], seconds: float = SECONDS) -> Entry:
    """Measure one case on these backends.

    A backend is timed if its result is within the op's bound. Rounds are interleaved, as in
    `benchmark.measure_op`; a backend that is far slower than another has six rounds only.
    """
    results, calls = benchmark.prepare(case, names)
    sound = {name: call for name, call in calls.items() if results[name].ok}
    contention = machine.Contention()
    timings = timing.time_calls(sound, seconds, most=FAR_TOO_SLOW)
    return Entry(
        op=case.op,
        dtype=case.dtype,
        shape=case.shape,
        date=datetime.now(UTC).date().isoformat(),
        seconds={name: timing.median for name, timing in timings.items()},
        wrong={name: _problem(result) for name, result in results.items() if not result.ok},
        intervals={
            name: (timing.low, timing.high)
            for name, timing in timings.items()
            if timing.low is not None and timing.high is not None
        },
        is_disturbed=contention.is_seen(),
    )


def table_of(names: Iterable[str], entries: Iterable[Entry]) -> Table:
    """Return the table of what was measured here, on these backends."""
    return Table(machine_facts(), {name: backend_facts(name) for name in names}, tuple(entries))


def _problem(result: Result) -> str:
    if result.failure is not None:
        return result.failure
    return (result.accuracy and result.accuracy.problem) or "its result is out of its bound"
