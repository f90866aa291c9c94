"""The part of a kernel that makes embeddings of sequences, beside its requests.

Tested by tests/decode/generation/test_embed.py.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.kernel.session import Session
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.scheduling.pooling import POOLINGS
from tensor_ops_decode.scheduling.request import check_lengths, checked_tokens

__all__ = ["EmbeddingSession"]


class EmbeddingSession(Session):
    """A session whose steps may leave the states of all tokens."""

    def embeddings(
        self, sequences: Sequence[Sequence[int]], *, pooling: str = "last"
    ) -> Iterator[list[Array]]:
        """Return groups of embeddings of sequences, each computed when it is asked for.

        Those of a group go through the model together, while requests take no step. No logits are
        computed. A group is empty where active requests leave no room for the next sequence: there
        may be some after a further step of theirs.

        Parameters
        ----------
        sequences : sequence of sequence of int
            Tokens.
        pooling : {"last", "mean", "cls", "weightedmean"}, optional
            How the states h_1 to h_n of the tokens of a sequence become one: h_n, ``sum(h_i) / n``,
            h_1, or ``sum(i * h_i) / sum(i)``.

        Returns
        -------
        iterator of list of ndarray
            Of float32, in the order of the sequences. They are not normalized.

        Raises
        ------
        TypeError, ValueError
            If a sequence has no tokens, others than the model's, or too many; if there is no such
            pooling; or if the kernel was made without ``embeddings=True``. Nothing is computed.
        LogitsError
            If states are NaN, when the group is asked for.

        Examples
        --------
        >>> import tensor_ops
        >>> kernel = tensor_ops.PersistentKernel(model="Qwen3-Embedding-0.6B")  # doctest: +SKIP
        >>> kernel.compile()  # doctest: +SKIP
        >>> [[embedding]] = kernel.embeddings([[785, 6722, 315, 9625]])  # doctest: +SKIP
        """
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r:.80}")
        with self._in_use():
            states = self._known_model().states
            if states is None:
                raise ValueError(
                    "the steps of this kernel leave no states to make embeddings of; open the "
                    "model with embeddings=True"
                )
            given = [checked_tokens(self.program, tokens, "the text") for tokens in sequences]
            for tokens in given:
                check_lengths(self.program, len(tokens), None)

        def groups() -> Iterator[list[Array]]:
            done = 0
            while done < len(given):
                with self._in_use() as requests:
                    found = requests.embed(given[done:], states, pooling)
                for number, each in enumerate(found, done):
                    if np.isnan(each).any():
                        raise LogitsError(
                            f"text {number}: its states are NaN: the weights are damaged, or "
                            "numbers became too large. Get the model's files again, or try "
                            "cache_dtype='float32'",
                            -1,
                        )
                done += len(found)
                yield found

        return groups()
