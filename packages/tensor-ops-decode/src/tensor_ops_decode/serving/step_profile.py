"""How long each node of a step took."""

from typing import NamedTuple

from tensor_ops_decode.kinds.kind import Array

__all__ = ["StepProfile"]


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
        program's nodes: in a node, and before and within it.
    """

    tokens: dict[int, int]
    seconds: float
    work: Array
    wait: Array
