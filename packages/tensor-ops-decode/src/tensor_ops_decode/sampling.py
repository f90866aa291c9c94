"""How a request's tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from tensor_ops_decode.kernel_arguments import whole

__all__ = ["Sampling"]


@dataclass(frozen=True)
class Sampling:
    """The settings of the node ``sample`` for one request.

    Attributes
    ----------
    temperature : float
        What the logits are divided by; 0 takes the largest one.
    top_k : int
        How many of the most probable tokens are kept; 0 keeps all.
    top_p : float
        The most probable tokens are kept until their probabilities sum to this.
    min_p : float
        Tokens less probable than this part of the most probable one are dropped.
    seed : int
        Of the random numbers: with the same seed, a request has the same tokens.

    Examples
    --------
    >>> Sampling(temperature=0.8, top_p=0.95, seed=7).top_k
    0
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        largest = float(np.finfo(np.float32).max)
        for name, most in (("temperature", largest), ("top_p", 1.0), ("min_p", 1.0)):
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            is_empty = name == "top_p" and value == 0  # no token would be left
            if not is_number or not 0 <= value <= most or is_empty:
                expected = "from 0 to 1" if most == 1 else "0 or larger, and finite in float32"
                expected = "larger than 0, up to 1" if name == "top_p" else expected
                raise ValueError(f"{name} must be a number {expected}, got {value!r}")
            object.__setattr__(self, name, float(value))
        for name, end in (("top_k", 2**31), ("seed", 2**64)):
            object.__setattr__(self, name, whole(name, getattr(self, name), 0, end - 1))
