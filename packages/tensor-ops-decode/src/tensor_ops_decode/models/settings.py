"""Numbers and words that a model's file says about itself, each checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.weights import FileFormatError

__all__ = ["ModelSettings"]

# More than any model has, and few enough that products of two fit in 64 bits.
_MOST = 2**31 - 1
_LARGEST, _SMALLEST = 1e300, 1e-300


class ModelSettings:
    """The settings of a model; `where` is the file that they are from, for errors."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive integer."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MOST:
            raise FileFormatError(
                f"{self.where}: {name} must be a positive integer, got {value!r:.80}"
            )
        return value

    def size_or_none(self, name: str, default: int | None = None) -> int:
        """Return a positive integer, or 0 where the value is 0 or null."""
        value = self.values.get(name, default)
        return 0 if value is None or value == 0 else self.size(name, default)

    def size_or_null(self, name: str) -> int:
        """Return a positive integer, or 0 where the value is null."""
        return 0 if self.values.get(name) is None else self.size(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive, finite number."""
        return self._positive(name, self._value(name, default))

    def number_or_none(self, name: str, default: float) -> float:
        """Return a positive number, or 0 where the value is 0 or null."""
        value = self.values.get(name, default)
        return 0.0 if value is None or value == 0 else self._positive(name, value)

    def number_or_null(self, name: str) -> float:
        """Return a positive number, or 0 where the value is null."""
        value = self.values.get(name)
        return 0.0 if value is None else self._positive(name, value)

    def flag(self, name: str) -> bool:
        """Return whether something is so."""
        value = self._value(name, None)
        if not isinstance(value, bool):
            raise FileFormatError(f"{self.where}: {name} must be true or false, got {value!r:.80}")
        return value

    def numbers(self, name: str, count: int) -> list[float]:
        """Return a list of so many positive numbers."""
        values = self._value(name, None)
        if not isinstance(values, list) or len(values) != count:
            raise FileFormatError(f"{self.where}: {name} must be a list of {count} numbers")
        return [self._positive(f"{name}[{i}]", value) for i, value in enumerate(values)]

    def section(self, name: str) -> ModelSettings:
        """Return the settings of an object within; none where it is missing or null."""
        values = self.values.get(name)
        if values is not None and not isinstance(values, Mapping):
            raise FileFormatError(f"{self.where}: {name} must be an object, got {values!r:.80}")
        return ModelSettings(self.where, values or {})

    def require(self, name: str, expected: object) -> None:
        """Raise a FileFormatError if a setting is not the default, the only one supported."""
        value = self.values.get(name, expected)
        if value != expected:
            raise FileFormatError(
                f"{self.where}: {name} is {value!r:.80}; only {expected!r} is supported"
            )

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise FileFormatError(f"{self.where}: {name} is missing")
        return value

    def _positive(self, name: str, value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not _SMALLEST <= value <= _LARGEST:
            raise FileFormatError(
                f"{self.where}: {name} must be a positive number, got {value!r:.80}"
            )
        return float(value)
