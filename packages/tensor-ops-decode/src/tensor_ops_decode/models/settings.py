"""Numbers and words that a model's file says about itself, each checked when it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.weights import FileFormatError

__all__ = ["Settings"]

# More than any model has, and few enough that products of two fit in 64 bits.
_MOST = 2**31 - 1


class Settings:
    """The settings of a model.

    Parameters
    ----------
    where : str
        The file, for errors.
    values : mapping
    """

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self.where = where
        self.values = values

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive integer."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MOST:
            raise FileFormatError(f"{self.where}: {name} must be a positive integer, got {value!r}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a positive, finite number."""
        value = self._value(name, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value <= 0:
            raise FileFormatError(f"{self.where}: {name} must be a positive number, got {value!r}")
        return float(value)

    def require(self, name: str, expected: object, default: object) -> None:
        """Raise a FileFormatError unless a setting has the only value that is supported."""
        value = self.values.get(name, default)
        if value != expected:
            raise FileFormatError(
                f"{self.where}: {name} is {value!r}; only {expected!r} is supported"
            )

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise FileFormatError(f"{self.where}: {name} is missing")
        return value
