"""Signatures of ops as their callers see them, and formulas of native docstrings line by line."""

import re
from typing import Any

__all__ = ["setup"]


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-signature", _as_called)
    # before numpydoc, which takes the indentation away
    app.connect("autodoc-process-docstring", _formula_as_it_is, priority=100)
    return {"parallel_read_safe": True}


def _as_called(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str
) -> tuple[str | None, str]:
    """Leave out of a signature what the annotations tell the checks, and nanobind's `self`."""
    own = getattr(thing, "__signature__", None)
    if own is not None:
        return str(own), ""
    return re.sub(r"^\(self(, )?", "(", signature) if signature else None, returned


def _formula_as_it_is(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Make a literal block of the indented lines that follow the summary."""
    if len(lines) > 2 and not lines[1] and lines[2].startswith("    "):
        lines[2:2] = ["::", ""]
