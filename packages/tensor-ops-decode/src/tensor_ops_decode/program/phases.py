"""Phases: the nodes of a program that an executable runs together."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from tensor_ops_decode.program.records import Parts

__all__ = ["Phases", "kinds_of_phase", "kinds_together", "phases_of"]

#: The numbers of the nodes of each phase.
Phases: TypeAlias = Sequence[Sequence[int]]


def phases_of(executable: Any, num_nodes: int) -> Phases:
    """Return the phases of an executable, which are its nodes where it has no others."""
    found: Phases = getattr(executable, "phases", [[index] for index in range(num_nodes)])
    return found


def kinds_of_phase(program: Parts, phase: Sequence[int]) -> str:
    """Return the kinds of the nodes of a phase, such as ``"rms_norm+linear"``."""
    return "+".join(program.nodes[index].kind for index in phase)


def kinds_together(program: Parts, executable: Any) -> dict[str, int]:
    """Return how many phases of several nodes an executable has, by their kinds."""
    phases = phases_of(executable, len(program.nodes))
    return dict(Counter(kinds_of_phase(program, each) for each in phases if len(each) > 1))
