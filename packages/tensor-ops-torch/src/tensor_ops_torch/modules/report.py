"""The outcome for each module of a model: swapped, or the reason why not."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tensor_ops import TensorOpsError

__all__ = ["SwapEntry", "SwapError", "SwapReport"]


@dataclass(frozen=True)
class SwapEntry:
    """One module that looks like an op of tensor_ops.

    Attributes
    ----------
    name : str
        Its name in the model; "" is the model itself.
    class_name : str
        The name of its class.
    op : str or None
        The op that computes it, or could.
    swapped : bool
        Whether the op does.
    reason : str or None
        Why it cannot.
    also : tuple of str
        Its other names, where the model holds it more than once.
    missing : str or None
        The name of what it computes, where that is known and no op of tensor_ops computes it.
    trusted : bool
        Whether its class was trusted, instead of its source code having been read.
    """

    name: str
    class_name: str
    op: str | None = None
    swapped: bool = False
    reason: str | None = None
    also: tuple[str, ...] = ()
    missing: str | None = None
    trusted: bool = False

    @property
    def outcome(self) -> str:
        """The outcome in words."""
        if self.reason is not None:
            return self.reason
        done = "swapped" if self.swapped else "can be swapped"
        return f"{done}, for its class is trusted" if self.trusted else done


@dataclass(frozen=True)
class SwapReport:
    """The outcome for every module that looks like an op of tensor_ops.

    Modules that do not, such as a linear layer, are not in it. ``print(report)`` shows a table.

    Attributes
    ----------
    entries : tuple of SwapEntry
        In the order of ``model.named_modules()``.
    """

    entries: tuple[SwapEntry, ...] = ()

    @property
    def swapped(self) -> tuple[SwapEntry, ...]:
        """The modules that an op computes."""
        return tuple(each for each in self.entries if each.swapped)

    @property
    def refused(self) -> tuple[SwapEntry, ...]:
        """The modules that look like an op and cannot be swapped, each with the reason."""
        return tuple(each for each in self.entries if each.reason is not None and not each.missing)

    @property
    def missing(self) -> tuple[SwapEntry, ...]:
        """The modules that compute what is known and no op of tensor_ops does."""
        return tuple(each for each in self.entries if each.missing)

    @property
    def counts(self) -> dict[str, int]:
        """The number of modules that each op computes."""
        return dict(Counter(each.op for each in self.swapped if each.op is not None))

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict that `json.dumps` takes."""
        return {
            "swapped": len(self.swapped),
            "refused": len(self.refused),
            "counts": self.counts,
            "modules": [asdict(each) for each in self.entries],
        }

    def __str__(self) -> str:
        total = len(self.entries)
        if not total:
            return "0 modules swapped: nothing in the model looks like an op of tensor_ops"
        lines = [f"{len(self.swapped)} of {total} {'module' if total == 1 else 'modules'} swapped"]
        rows = [
            (each.name or "(model)", each.class_name, each.op or "-", each.outcome)
            for each in self.entries
        ]
        rows.insert(0, ("module", "class", "op", "outcome"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [
            "  " + "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)


class SwapError(TensorOpsError, ValueError):
    """Modules of a model cannot be swapped, or restored, and nothing was changed.

    Attributes
    ----------
    report : SwapReport
        With the modules that stand in the way.
    """

    report: SwapReport

    def __init__(self, message: str, report: SwapReport) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type, tuple[str, SwapReport]]:
        return type(self), (str(self), self.report)
