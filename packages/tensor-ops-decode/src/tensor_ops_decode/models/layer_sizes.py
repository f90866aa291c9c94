"""What the layers of a model have, where they differ."""

from dataclasses import dataclass

__all__ = ["LayerSizes"]


@dataclass(frozen=True)
class LayerSizes:
    """The sizes of a layer, and where its keys and values are.

    Attributes
    ----------
    head_size, kv_heads, intermediate : int
    cache : int
        The layer whose keys and values it attends to: itself, or an earlier one of the same sizes.
    has_values : bool
        Whether values have a matrix; else they are what that of keys gives.
    """

    head_size: int
    kv_heads: int
    intermediate: int
    cache: int
    has_values: bool = True
