"""The sizes of linear attention by the gated delta rule."""

from dataclasses import dataclass

__all__ = ["DeltaAttention"]


@dataclass(frozen=True)
class DeltaAttention:
    """Linear attention instead of that to all positions, in some layers.

    Attributes
    ----------
    layers : tuple of bool
        Whether each layer has it.
    key_heads, heads, key_size, value_size : int
        `heads` are those of values.
    kept : int
        Of how many tokens before a token the convolution keeps a row.
    order : {"grouped", "tiled"}
        Which value heads have a key head: neighbours, or those that many apart.
    """

    layers: tuple[bool, ...]
    key_heads: int
    heads: int
    key_size: int
    value_size: int
    kept: int
    order: str
