"""Explanation of a kernel: its choices and its memory, as text and as plain values."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tensor_ops.extension import Step
from tensor_ops_decode.kernel.arguments import by_argument
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Limits, Program
from tensor_ops_decode.program.step_reads import StepReads
from tensor_ops_decode.sharding.rank_shares import RankShares
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["KernelExplanation", "rounded_options"]


class KernelExplanation(NamedTuple):
    """How a kernel's backend was chosen, and with what it runs.

    Attributes
    ----------
    backend : str
    model : str
        The model that it runs.
    decided_by, mode : str
        The level that decided on the backend, and how, as in `tensor_ops.explain`.
    steps : tuple of Step
        Every backend that was considered, with the reason why it was passed over.
    limits : Limits
        Those left out have their defaults.
    length_by : str
        The source of the longest sequence: the argument ``max_seq_length``, the model, the memory
        (caches get half of the bytes that the weights leave) or the default.
    options : mapping
        Of the executor, with the defaults once the kernel is compiled.
    activations_by : str
        The source of the type that activations are rounded to, if the executor has that option: the
        argument ``activations``, the model (`ArrayWeights` with ``activations``, where the executor
        multiplies them faster), the default, or the weights, beside which none is rounded.
    num_workers : int or None
        None before the kernel is compiled, unless it was given.
    memory : mapping of str to int
        Bytes by what takes them; empty before the kernel is compiled.
    packed_file : str or None
        The outcome of ``cache=``: where packed weights were mapped from or written to, or why they
        cannot be kept; None without it, and before the kernel is compiled.
    reads : StepReads or None
        The bytes that a step reads; None while the program is not known, which of layers by hand is
        before the kernel is compiled.
    note : str or None
        What the backend says of itself to those who run programs on it.
    shares : RankShares or None
        What each rank reads, where several share the model; None where one has it, where the
        layers are those of one rank, and while the program is not known.
    together : mapping of str to int
        How often the executor runs nodes of these kinds together, such as ``"rms_norm+linear"``;
        empty before the kernel is compiled.
    guesses_by : str or None
        Who guesses the ``num_speculative_tokens`` of a step: the draft of the model, a layer that
        it brings for that, or a search of what was said before, and then why. None without them.
    adapter : str or None
        The folder of the adapter, how many matrices have pairs, and of which ranks.
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
    together: Mapping[str, int]
    guesses_by: str | None = None
    adapter: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        return self._asdict() | {
            "steps": [step._asdict() for step in self.steps],
            "limits": by_argument(self.limits),
            "options": dict(self.options),
            "memory": dict(self.memory),
            "together": dict(self.together),
            "reads": None if self.reads is None else self.reads.as_dict(),
            "shares": None if self.shares is None else self.shares.as_dict(),
        }

    def __str__(self) -> str:
        lines = [
            f"{self.backend} runs {self.model}",
            f"  decided by {self.decided_by} ({self.mode})",
            *(f"  {step.backend}: {step.reason or 'chosen'}" for step in self.steps),
            *([] if self.adapter is None else [f"  adapter: {self.adapter}"]),
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
        if self.guesses_by is not None:
            lines.append(f"  guesses by {self.guesses_by}")
        if self.together:
            lines.append(f"  runs together: {_listed(self.together)}")
        if self.reads is not None:
            lines.append(f"  a step of one token reads {self.reads}")
        if self.shares is not None:
            lines.append(f"  {self.shares}")
        if self.note is not None:
            lines.append(f"  note: {self.note}")
        return "\n".join(lines)


def rounded_options(
    options: Mapping[str, object], activations_by: str, program: Program | None
) -> tuple[Mapping[str, object], str]:
    """Return options with what activations are rounded to in a program, and what decides on that.

    Integers are for products with integer weights, and bfloat16 also for those with bfloat16:
    beside other weights activations stay float32, whatever the option is.
    """
    rounded = options.get("activations", "float32")
    if program is None or rounded == "float32":
        return options, activations_by
    types = {
        program.tensors[name].type
        for node in program.nodes
        for slot in KINDS[node.kind].weights
        if not slot.is_table
        for name in node.weights.get(slot.name, ())
    }
    if "bf16" in types and rounded == "bfloat16":
        return options, activations_by
    if not all(FORMATS[each].is_float for each in types):
        return options, activations_by
    is_asked_for = activations_by == "activations="
    decided_by = "the weights, beside which none is rounded" if is_asked_for else activations_by
    return {**options, "activations": "float32"}, decided_by


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
