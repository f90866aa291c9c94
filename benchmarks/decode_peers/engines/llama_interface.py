"""The common part of the C interfaces of llama.cpp and of its forks."""

import time
from abc import ABC, abstractmethod
from itertools import count
from typing import Any

import numpy as np

from decode_peers.cases import tokens

__all__ = ["BATCH", "MOST_NEW", "Llama"]

BATCH = 512
MOST_NEW = 256


class Llama(ABC):
    """A model and its contexts, one for each number of sequences and length of their prompts.

    Parameters
    ----------
    api : module
        The functions of the interface, as ctypes has them.
    num_tokens : int
        How many tokens the model knows.
    """

    def __init__(self, api: Any, num_tokens: int) -> None:
        self._api, self._num_tokens = api, num_tokens
        self._contexts: dict[tuple[int, int], Any] = {}
        self._batch = api.llama_batch_init(BATCH, 0, 1)
        self._unseen = count(5000)

    @abstractmethod
    def new_context(self, sequences: int, positions: int) -> Any:
        """Return a context, or None; the sequences share its positions."""

    @abstractmethod
    def forget(self, where: Any, sequence: int, begin: int) -> bool:
        """Drop what the cache has of a sequence from a position on; return whether it can be."""

    def decode(self, sequences: int, context: int, new: int) -> float:
        """Return the seconds of a step; the cache of the prompt is that of earlier turns."""
        where = self._with_prompts(sequences, context)
        following = tokens(sequences)
        start = time.perf_counter()
        for step in range(new):
            positions = [context + step] * sequences
            self._run(where, following, positions, range(sequences), sequences)
            following = self._chosen(where, sequences)
        return (time.perf_counter() - start) / new

    def prompt(self, length: int) -> float:
        """Return the seconds until the first token."""
        where = self._contexts.get((1, length)) or self._context(1, length)
        self.forget(where, 0, 0)
        start = time.perf_counter()
        self._run(where, tokens(length, next(self._unseen)), range(length), [0] * length, 1)
        self._chosen(where, 1)
        return time.perf_counter() - start

    def _with_prompts(self, sequences: int, length: int) -> Any:
        """Return a context in which each sequence has its prompt and nothing more."""
        where = self._contexts.get((sequences, length))
        is_new = where is None
        if is_new:
            where = self._context(sequences, length)
        for sequence in range(sequences):
            if not is_new and self.forget(where, sequence, length):
                continue
            self.forget(where, sequence, 0)  # a state has no positions
            for begin in range(0, length, BATCH):
                part = tokens(length, sequence)[begin : begin + BATCH]
                self._run(where, part, range(begin, begin + len(part)), [sequence] * len(part), 1)
        return where

    def _context(self, sequences: int, length: int) -> Any:
        """Return a new context, which has a cache of its own for each sequence."""
        where = self.new_context(sequences, sequences * (length + MOST_NEW))
        if not where:
            raise MemoryError("the library makes no context")
        self._contexts[sequences, length] = where
        return where

    def _run(self, where: Any, ids: Any, positions: Any, sequences: Any, outputs: int) -> None:
        """Run tokens; the last `outputs` of them get logits."""
        batch = self._batch
        batch.n_tokens = len(ids)
        for row, (token, position, sequence) in enumerate(
            zip(ids, positions, sequences, strict=True)
        ):
            batch.token[row] = token
            batch.pos[row] = position
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
            batch.logits[row] = row >= len(ids) - outputs
        if self._api.llama_decode(where, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def _chosen(self, where: Any, outputs: int) -> list[int]:
        """Return the likeliest token of each row that has logits, which are the last ones."""
        logits = self._api.llama_get_logits_ith
        rows = [logits(where, row - outputs) for row in range(outputs)]
        return [int(np.ctypeslib.as_array(row, shape=(self._num_tokens,)).argmax()) for row in rows]
