"""Embeddings of texts: their prompts, how their tokens are pooled, and their length.

Tested by tests/decode/generation/test_embed.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.generation.answer import errors_of_prompt
from tensor_ops_decode.models.embedding_settings import EmbeddingSettings, embedding_settings
from tensor_ops_decode.scheduling.pooling import POOLINGS
from tensor_ops_decode.text.arguments import Prompt, checked_prompt, listed_prompts
from tensor_ops_decode.weights import FileFormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensor_ops_decode.generation.answering import Answering
    from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
    from tensor_ops_decode.text import Tokenizer
    from tensor_ops_decode.weights import Weights

__all__ = ["Embedder"]


class Embedder:
    """The part of a `Model` that makes embeddings of texts."""

    kernel: PersistentKernel
    tokenizer: Tokenizer
    answering: Answering
    _weights: Weights

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> NDArray[np.float32]:
        """Return the embeddings of one or several texts.

        They are pooled from the states h_1 to h_n that the model computes logits from, those of the
        last norm; no logits are computed. Several texts are computed together, as many as the model
        has requests. The model must be opened with ``embeddings=True``, which is the default where
        its files say how to pool.

        Parameters
        ----------
        texts : str, sequence of int, or a sequence of these
            Text or tokens. A text gets the tokens that the model wants before and behind one.
        pooling : {"last", "mean", "cls", "weightedmean"}, optional
            h_n, ``sum(h_i) / n``, h_1, or ``sum(i * h_i) / sum(i)``. By default what the files say:
            of a folder ``modules.json``, of a GGUF file ``pooling_type``.
        normalize : bool, optional
            Whether an embedding is divided by its length. By default what ``modules.json`` says,
            and true for GGUF files, as in llama.cpp.
        prompt_name : str, optional
            The name of a text in ``config_sentence_transformers.json`` that is put before each
            text, but not before tokens. By default the one that this file names, if it does.
        prompt : str, optional
            Another text to put before each; ``""`` for none.

        Returns
        -------
        ndarray
            A row of float32 for each text.

        Raises
        ------
        ValueError
            If a text is empty, too long or has tokens that the model does not know; if there is no
            pooling or prompt of this name, or no pooling at all; or if the model is opened without
            ``embeddings=True``. Nothing has been computed.
        TypeError
            If an argument is of another type.
        FileFormatError
            If the files say what cannot be or is not supported, such as a module ``Dense``.
        LogitsError
            If states are NaN.

        Examples
        --------
        >>> import tensor_ops_decode
        >>> model = tensor_ops_decode.load("Qwen3-Embedding-0.6B")  # doctest: +SKIP
        >>> query = model.embed("Who wrote Faust?", prompt_name="query")  # doctest: +SKIP
        >>> texts = model.embed(["Goethe wrote it.", "It rains."])  # doctest: +SKIP
        >>> (query @ texts.T).shape  # doctest: +SKIP
        (1, 2)
        """
        if pooling is not None and pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r:.80}")
        if normalize is not None and not isinstance(normalize, bool):
            raise TypeError(f"normalize must be a bool, got {normalize!r:.80}")
        self.kernel.embeddings([])  # an error, if its steps leave no states
        settings = embedding_settings(self._weights, pooling)
        if settings.pooling is None:
            raise ValueError(
                f"{self._weights.path}: the model's files do not say how to pool; give pooling=, "
                f"one of {', '.join(POOLINGS)}"
            )
        before = _chosen_prompt(settings, prompt_name, prompt, self._weights.path)
        listed = listed_prompts(texts)
        sequences = [self._tokens_of(f"text {i}", each, before) for i, each in enumerate(listed)]
        for number, tokens in enumerate(sequences):
            with errors_of_prompt(number, len(sequences), "text"):
                self.kernel.embeddings([tokens], pooling=settings.pooling)
        groups = self.kernel.embeddings(sequences, pooling=settings.pooling)
        found: list[NDArray[np.float32]] = []
        while len(found) < len(sequences):
            with self.answering.lock:
                self.answering.remove_abandoned()
                group = next(groups)
                if not group:  # requests of other threads must end first, who find their errors
                    with contextlib.suppress(LogitsError):
                        self.kernel.run(1)
            found += group
        columns = self.kernel.program.values["norm"].columns
        rows = np.array(found, np.float32).reshape(len(found), columns)
        is_normalized = settings.normalize if normalize is None else normalize
        return _normalized(rows) if is_normalized else rows

    def _tokens_of(self, name: str, text: Prompt, before: str) -> list[int]:
        given = checked_prompt(name, text)
        return self.tokenizer.encode(before + given) if isinstance(given, str) else given


def _chosen_prompt(
    settings: EmbeddingSettings, name: str | None, prompt: str | None, path: str
) -> str:
    """Return what is put before each text."""
    for what, given in (("prompt_name", name), ("prompt", prompt)):
        if given is not None and not isinstance(given, str):
            raise TypeError(f"{what} must be a string, got {given!r:.80}")
    if name is not None and prompt is not None:
        raise ValueError("prompt and prompt_name both say what to put before a text; give one")
    if name is not None and name not in settings.prompts:
        raise ValueError(
            f"{path}: there is no prompt {name!r:.80}; there are "
            f"{', '.join(map(repr, settings.prompts)) or 'none'}"
        )
    if prompt is None:
        chosen = settings.default_prompt if name is None else name
        prompt = "" if chosen is None else settings.prompts[chosen]
    if prompt and not settings.pools_prompt:
        raise FileFormatError(
            f"{path}: include_prompt is false: the tokens of a prompt are left out when pooling, "
            "which is not supported; give pooling= to pool them too, or prompt='' for none"
        )
    return prompt


def _normalized(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows divided by their lengths, but for rows of zeros."""
    values = rows.astype(np.float64)
    lengths = np.sqrt(np.sum(values * values, axis=1, keepdims=True))
    normalized: NDArray[np.float32] = (values / np.where(lengths > 0, lengths, 1)).astype(
        np.float32
    )
    return normalized
