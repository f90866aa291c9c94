"""Pooling: the embedding of a text from the states of its tokens.

Tested by tests/decode/generation/test_embed.py.
"""

from __future__ import annotations

import numpy as np

from tensor_ops_decode.kinds.kind import Array

__all__ = ["POOLINGS", "Pool"]

#: Of states h_1 to h_n: ``last`` is h_n, ``cls`` is h_1, ``mean`` is ``sum(h_i) / n``, and
#: ``weightedmean`` is ``sum(i * h_i) / sum(i)``.
POOLINGS = ("last", "mean", "cls", "weightedmean")


class Pool:
    """Takes the states of a text's tokens in their order, step by step.

    They are added in float64, one after another, so that it does not matter how steps divide the
    text. With a mean of n states of float32, the error is at most ``n * 2**-53`` of the mean of
    their magnitudes, and then that of rounding it to float32.

    Examples
    --------
    >>> import numpy as np
    >>> pool = Pool("weightedmean")
    >>> pool.add(np.array([[3.0, 0.0], [0.0, 6.0]], np.float32))
    >>> pool.result().tolist()
    [1.0, 4.0]
    """

    def __init__(self, pooling: str) -> None:
        self._pooling = pooling
        self._total: Array = np.zeros(())
        self._weight = self._count = 0

    def add(self, states: Array) -> None:
        """Take the states of the next tokens, a row for each."""
        first, self._count = self._count + 1, self._count + len(states)
        if self._pooling == "last" or (self._pooling == "cls" and first == 1):
            row = states[-1 if self._pooling == "last" else 0]
            self._total, self._weight = row.astype(np.float64), 1
        elif self._pooling != "cls":
            for position, row in enumerate(states, first):
                weight = position if self._pooling == "weightedmean" else 1
                self._total = self._total + weight * row.astype(np.float64)
                self._weight += weight

    def result(self) -> Array:
        """Return what they are pooled to, in float32."""
        return (self._total / self._weight).astype(np.float32)
