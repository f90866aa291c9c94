"""Configurations: dataclasses whose fields are checked when they are made or assigned to."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Collection
from typing import Any

from tensor_ops import ConfigError
from tensor_ops.extension import did_you_mean

__all__ = ["Config", "choice", "flag", "integer", "member", "number", "part", "setting"]

Check = Callable[[str, Any], Any]


class Config:
    """Base of the dataclasses of settings.

    A field is assigned what its check returns: the value, or the member of an enumeration that it
    names. Everything else is an error that names the field, and the field keeps its value.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        fields = {each.name: each for each in dataclasses.fields(self)}  # type: ignore[arg-type]
        label = f"{type(self).__name__}.{name}"
        if name not in fields:
            near = did_you_mean(name, fields)
            raise AttributeError(
                f"{label} is no setting; {near}the settings are {', '.join(sorted(fields))}"
            )
        object.__setattr__(self, name, fields[name].metadata["check"](label, value))

    def changed(self) -> dict[str, Any]:
        """Return the fields whose value is not the default: what the user asked for.

        Returns
        -------
        dict
            From the name to the value; a part that is settings itself is left out.

        Examples
        --------
        >>> from tensor_ops_devices.hardware.config import NVIDIAConfig
        >>> NVIDIAConfig(fp8_enabled=True).changed()
        {'fp8_enabled': True}
        """
        found = {}
        for each in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if not isinstance(value, Config) and value != each.default:
                found[each.name] = value
        return found


def setting(default: Any, check: Check) -> Any:
    """Return a field of a dataclass with a default, or a class that makes one, and a check."""
    metadata = {"check": check}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def part(kind: type[Config]) -> Check:
    """Return a check for settings of a kind."""
    return _check(lambda value: isinstance(value, kind), f"a {kind.__name__}")


def flag(*, optional: bool = False) -> Check:
    """Return a check for True and False, and None where that has a meaning."""
    wanted = "True, False or None" if optional else "True or False"
    return _check(lambda value: isinstance(value, bool) or (optional and value is None), wanted)


def integer(at_least: int, at_most: int | None = None, *, optional: bool = False) -> Check:
    """Return a check for an int within limits, both included."""

    def accepts(value: Any) -> bool:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        return is_int and value >= at_least and (at_most is None or value <= at_most)

    limits = f">= {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    return _check(accepts, f"an int {limits}", optional)


def number(above: float, at_most: float | None = None, *, optional: bool = False) -> Check:
    """Return a check for a finite number above one limit and not above another."""

    def accepts(value: Any) -> bool:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        is_inside = is_number and math.isfinite(value) and value > above
        return is_inside and (at_most is None or value <= at_most)

    limits = f"> {above:g}" if at_most is None else f"> {above:g} and <= {at_most:g}"
    return _check(accepts, f"a number {limits}", optional)


def choice(*allowed: str, optional: bool = False, why: str = "") -> Check:
    """Return a check for one of several strings; `why` says why there are no others."""
    wanted = f"one of {', '.join(map(repr, allowed))}{' or None' if optional else ''}{why}"

    def accepts(value: Any) -> bool:
        return (optional and value is None) or (isinstance(value, str) and value in allowed)

    return _check(accepts, wanted, names=allowed)


def member(kind: type[enum.Enum]) -> Check:
    """Return a check for a member of an enumeration, or the value of one."""
    names = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
    values = [each.value for each in kind]
    is_member = _check(lambda value: value in values, f"one of {names}", names=values)
    return lambda label, value: kind(is_member(label, value))


def _check(
    accepts: Callable[[Any], bool],
    wanted: str,
    optional: bool = False,
    names: Collection[str] = (),
) -> Check:
    """Return a check that raises ConfigError for what is not accepted, with the nearest name."""

    def check(label: str, value: Any) -> Any:
        if accepts(value) or (optional and value is None):
            return value
        near = did_you_mean(value, names) if isinstance(value, str) and names else ""
        expected = f"{wanted} or None" if optional else wanted
        raise ConfigError(
            f"{label} is {value!r} ({type(value).__name__}); {near}expected {expected}"
        )

    return check
