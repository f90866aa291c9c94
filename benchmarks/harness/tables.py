"""Tables in Markdown."""

from collections.abc import Iterable, Sequence

__all__ = ["shape_text", "table"]


def table(head: Sequence[str], rows: Iterable[Sequence[object]], rule: str = "---") -> str:
    """Return rows under a head, with the rule of each column between them."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    if not lines:
        return "Not measured."
    return "\n".join([f"| {' | '.join(head)} |", "|" + f"{rule}|" * len(head), *lines])


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as in ``(128, 4096)``."""
    return f"({', '.join(map(str, shape))})"
