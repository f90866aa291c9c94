"""How long steps and their nodes take; the former decides how many run in a row."""

from typing import NamedTuple

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program.phases import Phases

__all__ = ["StepProfile", "StepTimes"]


class StepProfile(NamedTuple):
    """A step that was measured.

    A thread has worked on nodes or waited for other threads. What its rows of `work` and `wait`
    leave of `seconds` is its wait for the thread that was the last.

    Attributes
    ----------
    tokens : dict of int to int
        What a call of the kernel returns.
    seconds : float
        The time of the step in the executor, without Python's.
    work, wait : ndarray
        Seconds, shape ``(workers, nodes)`` of the workers that took part, in the order of the
        program's nodes: in a node, and before and within it. Nodes that run together have all of
        their time in one of them.
    phases : sequence of sequence of int
        The numbers of the nodes that run together.
    """

    tokens: dict[int, int]
    seconds: float
    work: Array
    wait: Array
    phases: Phases


class StepTimes:
    """The times of steps with one token of each request, by the number of requests.

    What it answers depends on nothing but what was noted, so that processes which note the same
    run rows of the same length.

    Examples
    --------
    >>> times = StepTimes()
    >>> times.note(2, num_steps=10, seconds=0.5)
    >>> times.steps_within(2, 0.25, most=32), times.steps_within(3, 0.25, most=32)
    (5, 1)
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def note(self, num_requests: int, num_steps: int, seconds: float) -> None:
        """Note how long so many steps of so many requests took; later ones are judged by them."""
        self._seconds[num_requests] = seconds / num_steps

    def steps_within(self, num_requests: int, seconds: float, most: int) -> int:
        """Return how many steps end within the time if they take as long as the last ones.

        It is from 1 to `most`. A step of fewer requests takes no longer than one of more. Where
        none has been noted of as many, one step shows how long it takes.
        """
        noted = min((each for each in self._seconds if each >= num_requests), default=None)
        if noted is None:
            return 1
        each = self._seconds[noted]
        return most if each * most <= seconds else max(1, int(seconds / each))
