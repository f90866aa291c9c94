"""The sizes of multi-head latent attention."""

from dataclasses import dataclass

__all__ = ["LatentAttention"]


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention, which keeps one latent for the keys and values of all heads.

    Attributes
    ----------
    query_rank : int
        The size of the latent that queries are made from; 0 where there is none.
    rank : int
        The size of the latent of keys and values.
    key_size, rotated_size, value_size : int
        Of each head: the elements of a key that are made from the latent, those that are rotated,
        which all heads have alike, and those of a value.
    eps : float
        Of the norms of both latents. The models have it whatever that of their other norms is.
    """

    query_rank: int
    rank: int
    key_size: int
    rotated_size: int
    value_size: int
    eps: float = 1e-6
