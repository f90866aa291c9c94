"""What a kernel runs on and what it takes, as text and as plain values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tensor_ops.extension import Step
from tensor_ops_decode.kernel.arguments import by_argument
from tensor_ops_decode.program import Limits
from tensor_ops_decode.program.rank_shares import RankShares
from tensor_ops_decode.program.step_reads import StepReads

__all__ = ["KernelExplanation"]


class KernelExplanation(NamedTuple):
    """How a kernel's backend was chosen, and with what it runs.

    Attributes
    ----------
    backend : str
    model : str
        What it runs.
    decided_by, mode : str
        The level that decided on the backend, and how, as in `tensor_ops.explain`.
    steps : tuple of Step
        Every backend that was considered, with the reason why it was passed over.
    limits : Limits
        Those left out have their defaults.
    length_by : str
        What decided on the longest sequence: the argument ``max_seq_length``, the model, the memory
        (caches get half of the bytes that the weights leave) or the default.
    options : mapping
        Of the executor, with the defaults once the kernel is compiled.
    activations_by : str
        What decided on what activations are rounded to, if the executor has that option: the
        argument ``activations``, the model (`ArrayWeights` with ``activations``, where the executor
        has instructions for them) or the default.
    num_workers : int or None
        None before the kernel is compiled, unless it was given.
    memory : mapping of str to int
        What takes how many bytes; empty before the kernel is compiled.
    packed_file : str or None
        What ``cache=`` has done: where packed weights were mapped from or written to, or why they
        cannot be kept; None without it, and before the kernel is compiled.
    reads : StepReads or None
        The bytes that a step reads; None while the program is not known, which of layers by hand is
        before the kernel is compiled.
    note : str or None
        What the backend says of itself to those who run programs on it.
    shares : RankShares or None
        What each rank reads, where several share the model; None where one has it, where the
        layers are those of one rank, and while the program is not known.
    """

    backend: str
    model: str
    decided_by: str
    mode: str
    steps: tuple[Step, ...]
    limits: Limits
    length_by: str
    options: Mapping[str, object]
    activations_by: str
    num_workers: int | None
    memory: Mapping[str, int]
    packed_file: str | None
    reads: StepReads | None
    note: str | None
    shares: RankShares | None

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        return self._asdict() | {
            "steps": [step._asdict() for step in self.steps],
            "limits": by_argument(self.limits),
            "options": dict(self.options),
            "memory": dict(self.memory),
            "reads": None if self.reads is None else self.reads.as_dict(),
            "shares": None if self.shares is None else self.shares.as_dict(),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.backend} runs {self.model}",
            f"  decided by {self.decided_by} ({self.mode})",
            *(f"  {step.backend}: {step.reason or 'chosen'}" for step in self.steps),
            f"  limits: {_listed(by_argument(self.limits))}",
            f"  longest sequence decided by {self.length_by}",
        ]
        options = dict(self.options)
        if self.num_workers is not None:
            options["num_workers"] = self.num_workers
        if options:
            lines.append(f"  options: {_listed(options)}")
        if "activations" in options:
            lines.append(f"  activations decided by {self.activations_by}")
        if self.memory:
            sizes = [f"{name} {size / 2**20:.1f} MiB" for name, size in self.memory.items()]
            lines.append(f"  memory: {', '.join(sizes)}")
        if self.packed_file is not None:
            lines.append(f"  packed weights: {self.packed_file}")
        if self.reads is not None:
            lines.append(f"  a step of one token reads {self.reads}")
        if self.shares is not None:
            lines.append(f"  {self.shares}")
        if self.note is not None:
            lines.append(f"  note: {self.note}")
        return "\n".join(lines)


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
