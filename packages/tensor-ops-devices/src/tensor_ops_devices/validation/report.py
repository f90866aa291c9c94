"""Checks and their outcomes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from tensor_ops import BackendError

__all__ = [
    "ValidationCheck",
    "Status",
    "ValidationReport",
    "failed",
    "passed",
    "skipped",
    "warning",
]


class Status(enum.StrEnum):
    """The outcome of a check."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class ValidationCheck:
    """One check and its outcome.

    Attributes
    ----------
    name : str
        What was checked; of a setting, its name.
    status : Status
    message : str
        What was found.
    what_to_do : str
        What would change that; empty if nothing needs to.
    """

    name: str
    status: Status
    message: str
    what_to_do: str = ""

    def __str__(self) -> str:
        todo = f"; {self.what_to_do}" if self.what_to_do else ""
        return f"{self.name}: {self.message}{todo}"


@dataclass(frozen=True)
class ValidationReport:
    """The outcomes of the checks of one model for one kind of hardware. It prints as a table.

    It is true where nothing failed, as `ok` is: ``if report:`` and ``assert report`` ask for that.

    Attributes
    ----------
    target : str
        What the model was checked for.
    checks : tuple of ValidationCheck
        In the order in which they were made.
    """

    target: str
    checks: tuple[ValidationCheck, ...]

    @property
    def passed(self) -> list[ValidationCheck]:
        """The checks that found nothing wrong."""
        return self._with(Status.PASSED)

    @property
    def warnings(self) -> list[ValidationCheck]:
        """The checks that found what works, but not as one may expect."""
        return self._with(Status.WARNING)

    @property
    def failed(self) -> list[ValidationCheck]:
        """The checks that found what cannot work."""
        return self._with(Status.FAILED)

    @property
    def skipped(self) -> list[ValidationCheck]:
        """The checks that could not be made, with what they need."""
        return self._with(Status.SKIPPED)

    @property
    def ok(self) -> bool:
        """Whether nothing failed. What was skipped may still fail elsewhere."""
        return not self.failed

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_failed(self) -> None:
        """Raise BackendError with everything that failed, if anything did."""
        raise_failed(self.target, self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict that JSON can hold.

        Returns
        -------
        dict
            With ``target``, ``ok`` and, for each status, a list of dicts with ``name``, ``message``
            and ``what_to_do``.
        """
        words: dict[str, Any] = {"target": self.target, "ok": self.ok}
        for status in Status:
            key = "warnings" if status is Status.WARNING else status.value
            words[key] = [
                {"name": each.name, "message": each.message, "what_to_do": each.what_to_do}
                for each in self._with(status)
            ]
        return words

    def __str__(self) -> str:
        counts = ", ".join(f"{len(self._with(each))} {each.value}" for each in Status)
        lines = [f"{self.target}: {counts}"]
        width = max((len(each.name) for each in self.checks), default=0)
        for status in (Status.FAILED, Status.WARNING, Status.PASSED, Status.SKIPPED):
            for each in self._with(status):
                lines.append(f"  {status.value:<8} {each.name:<{width}}  {each.message}")
                if each.what_to_do:
                    lines.append(f"  {'':<8} {'':<{width}}  -> {each.what_to_do}")
        return "\n".join(lines)

    def _with(self, status: Status) -> list[ValidationCheck]:
        return [each for each in self.checks if each.status is status]


def passed(name: str, message: str) -> ValidationCheck:
    """Return a check that found nothing wrong."""
    return ValidationCheck(name, Status.PASSED, message)


def warning(name: str, message: str, what_to_do: str) -> ValidationCheck:
    """Return a check that found what works, but not as one may expect."""
    return ValidationCheck(name, Status.WARNING, message, what_to_do)


def failed(name: str, message: str, what_to_do: str) -> ValidationCheck:
    """Return a check that found what cannot work."""
    return ValidationCheck(name, Status.FAILED, message, what_to_do)


def skipped(name: str, message: str, what_to_do: str) -> ValidationCheck:
    """Return a check that could not be made."""
    return ValidationCheck(name, Status.SKIPPED, message, what_to_do)


def raise_failed(target: str, checks: tuple[ValidationCheck, ...]) -> None:
    """Raise BackendError with the checks that failed, if any did."""
    wrong = [str(each) for each in checks if each.status is Status.FAILED]
    if wrong:
        raise BackendError(f"{target}: {' | '.join(wrong)}")
