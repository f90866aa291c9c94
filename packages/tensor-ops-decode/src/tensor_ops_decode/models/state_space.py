"""The sizes of a state space model with heads, Mamba 2, which layers may have for attention."""

from dataclasses import dataclass

__all__ = ["StateSpace"]


@dataclass(frozen=True)
class StateSpace:
    """A state space model, which some layers have instead of attention.

    Attributes
    ----------
    layers : tuple of bool
        Whether each layer has it.
    heads, head_size, groups, state_size : int
        The heads of a group read and write their states by the same vectors.
    kept : int
        The number of earlier tokens whose rows the convolution keeps.
    has_bias : bool
        Whether the convolution has a bias.
    """

    layers: tuple[bool, ...]
    heads: int
    head_size: int
    groups: int
    state_size: int
    kept: int
    has_bias: bool
