"""How the module's answers print."""

from typing import Any

__all__ = ["Table"]


class Table(dict[str, Any]):
    """A dict that prints as a table."""

    def __str__(self) -> str:
        width = max(map(len, self))
        return "\n".join(f"{key:<{width}}  {_text(value)}" for key, value in self.items())


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
