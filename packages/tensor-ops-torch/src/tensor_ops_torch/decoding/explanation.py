"""The explanation of what runs a model, and why, as text and as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["DecoderExplanation"]


class DecoderExplanation(NamedTuple):
    """What runs a model of transformers.

    Attributes
    ----------
    model : str
        The name of its class.
    runs : {"kernel", "transformers"}
    reason : str or None
        Why the kernel does not run.
    weights : mapping of str to int
        How many of the model's tensors the kernel has in which type.
    merged : tuple of str
        The adapters that were merged while the weights were packed.
    is_released : bool
        Whether the model's own weights were given up.
    kernel : KernelExplanation or None
        What `PersistentKernel.explain` returns: the backend and why, limits, memory, what a step
        reads.
    """

    model: str
    runs: str
    reason: str | None
    weights: Mapping[str, int]
    merged: tuple[str, ...]
    is_released: bool
    kernel: Any

    def as_dict(self) -> dict[str, Any]:
        """Return the same facts as plain values."""
        return self._asdict() | {
            "weights": dict(self.weights),
            "kernel": None if self.kernel is None else self.kernel.as_dict(),
        }

    def __str__(self) -> str:
        if self.kernel is None:
            lines = [
                f"{self.model}: its own generate() runs, in PyTorch",
                f"  the engine does not: {self.reason}",
            ]
            return "\n".join(lines)
        types = ", ".join(f"{count} as {name}" for name, count in self.weights.items())
        lines = [
            f"{self.model}: a kernel of the backend {self.kernel.backend} runs all of a step",
            f"  tensors: {types}",
        ]
        if self.merged:
            lines.append(f"  merged while packing: {', '.join(self.merged)}")
        if self.is_released:
            lines.append("  the model's own weights were given up")
        return "\n".join([*lines, *(f"  {line}" for line in str(self.kernel).splitlines())])
