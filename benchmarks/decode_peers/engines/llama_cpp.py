"""llama.cpp by its own interface, which llama-cpp-python has: a batch is of tokens of sequences."""

import ctypes
import time
from itertools import count
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as api

from decode_peers.cases import Room, tokens

__all__ = ["PACKAGES", "open"]

PACKAGES = ("llama-cpp-python",)
BATCH = 512
MOST_NEW = 256


class Opened:
    """A model and its contexts, one for each number of sequences."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        api.llama_log_set(_SILENT, ctypes.c_void_p(0))
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(
            str(model).encode(), api.llama_model_default_params()
        )
        if not self._model:
            raise ValueError("llama.cpp does not open the file")
        vocabulary = api.llama_model_get_vocab(self._model)
        self._num_tokens = api.llama_vocab_n_tokens(vocabulary)
        self._threads = settings["threads"]
        self._contexts: dict[tuple[int, int], Any] = {}
        self._batch = api.llama_batch_init(BATCH, 0, 1)
        self._unseen = count(5000)

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
        api.llama_memory_clear(api.llama_get_memory(where), False)
        start = time.perf_counter()
        self._run(where, tokens(length, next(self._unseen)), range(length), [0] * length, 1)
        self._chosen(where, 1)
        return time.perf_counter() - start

    def _with_prompts(self, sequences: int, length: int) -> Any:
        """Return a context in which each sequence has its prompt and nothing more."""
        if where := self._contexts.get((sequences, length)):
            for sequence in range(sequences):
                api.llama_memory_seq_rm(api.llama_get_memory(where), sequence, length, -1)
            return where
        where = self._context(sequences, length)
        for sequence in range(sequences):
            for begin in range(0, length, BATCH):
                part = tokens(length, sequence)[begin : begin + BATCH]
                self._run(where, part, range(begin, begin + len(part)), [sequence] * len(part), 1)
        return where

    def _context(self, sequences: int, length: int) -> Any:
        """Return a new context, which has a cache of its own for each sequence."""
        params = api.llama_context_default_params()
        params.n_ctx = sequences * (length + MOST_NEW)
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = self._threads
        where = api.llama_init_from_model(self._model, params)
        if not where:
            raise MemoryError("llama.cpp makes no context")
        self._contexts[sequences, length] = where
        return where

    def _run(self, where: Any, ids: Any, positions: Any, sequences: Any, outputs: int) -> None:
        """Run tokens, of which the last ones are to have logits."""
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
        if api.llama_decode(where, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def _chosen(self, where: Any, outputs: int) -> list[int]:
        """Return the likeliest token of each row that has logits, which are the last ones."""
        rows = [api.llama_get_logits_ith(where, row - outputs) for row in range(outputs)]
        return [int(np.ctypeslib.as_array(row, shape=(self._num_tokens,)).argmax()) for row in rows]


@llama_cpp.llama_log_callback
def _SILENT(_level: int, _text: bytes, _data: Any) -> None:  # noqa: N802  (kept from collection)
    pass


open = Opened
