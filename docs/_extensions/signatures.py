"""Signatures of ops as their callers see them, without what the annotations tell the checks."""

from typing import Any

__all__ = ["setup"]


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-signature", _as_called)
    return {"parallel_read_safe": True}


def _as_called(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returned: str
) -> tuple[str, str] | None:
    own = getattr(thing, "__signature__", None)
    return None if own is None else (str(own), "")
