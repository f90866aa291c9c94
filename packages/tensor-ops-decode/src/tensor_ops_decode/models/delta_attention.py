"""The sizes of linear attention by the gated delta rule."""

from dataclasses import dataclass

__all__ = ["DeltaAttention"]


@dataclass(frozen=True)
class DeltaAttention:
    """Linear attention, which some layers have instead of softmax attention.

    Attributes
    ----------
    layers : tuple of bool
        Whether each layer has it.
    key_heads, heads, key_size, value_size : int
        `heads` is the number of value heads.
    kept : int
        The number of earlier tokens whose rows the convolution keeps.
    order : {"grouped", "tiled"}
        Which value heads share a key head: neighbours, or every `key_heads`-th one.
    """

    layers: tuple[bool, ...]
    key_heads: int
    heads: int
    key_size: int
    value_size: int
    kept: int
    order: str
