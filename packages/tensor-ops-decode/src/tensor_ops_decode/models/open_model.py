"""A model whose files are open: its weights, and what they say of its steps and its answers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.models.generation_settings import end_tokens_of, problem_with_end_tokens
from tensor_ops_decode.weights import Weights, open_weights

__all__ = ["OpenModel"]


@dataclass(frozen=True)
class OpenModel:
    """The weights of a model, and what its files say.

    Attributes
    ----------
    weights : Weights
    decoder : Decoder
    end_tokens : frozenset of int
        What ends an answer, of the tokens that the model can choose.
    problem : str or None
        What is wrong with the end tokens of the files.
    """

    weights: Weights
    decoder: Decoder
    end_tokens: frozenset[int] = frozenset()
    problem: str | None = None

    @staticmethod
    def of(model: str | os.PathLike[str] | Weights | OpenModel) -> OpenModel:
        """Open a model, unless it is open; raises as `open_weights` and `decoder_of`."""
        if isinstance(model, OpenModel):
            return model
        weights = open_weights(model) if isinstance(model, (str, os.PathLike)) else model
        found = OpenModel(weights, decoder_of(weights)).with_end_tokens(end_tokens_of(weights))
        return replace(found, problem=problem_with_end_tokens(weights))

    @property
    def start_token(self) -> int:
        """The token that begins a text; 0 where the files name none that the model has."""
        metadata = self.weights.metadata
        start = metadata.get("tokenizer.ggml.bos_token_id", metadata.get("bos_token_id"))
        return start if type(start) is int and 0 <= start < self.decoder.vocabulary else 0

    def with_end_tokens(self, tokens: Iterable[int]) -> OpenModel:
        """Return the model with tokens that end an answer too, where it can choose them."""
        known = frozenset(token for token in tokens if token < self.decoder.vocabulary)
        return replace(self, end_tokens=self.end_tokens | known)
