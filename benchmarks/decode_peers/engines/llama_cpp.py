"""llama.cpp by its own interface, which llama-cpp-python has: a batch is of tokens of sequences."""

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as api

from decode_peers.cases import Room
from decode_peers.engines.llama_interface import BATCH, Llama

__all__ = ["PACKAGES", "open"]

PACKAGES = ("llama-cpp-python",)


class Opened(Llama):
    """A model with the library's defaults."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        api.llama_log_set(_SILENT, ctypes.c_void_p(0))
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(
            str(model).encode(), api.llama_model_default_params()
        )
        if not self._model:
            raise ValueError("llama.cpp does not open the file")
        vocabulary = api.llama_model_get_vocab(self._model)
        super().__init__(api, api.llama_vocab_n_tokens(vocabulary))
        self._threads = settings["threads"]

    def new_context(self, sequences: int, positions: int) -> Any:
        params = api.llama_context_default_params()
        params.n_ctx = positions
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = self._threads
        return api.llama_init_from_model(self._model, params)

    def forget(self, where: Any, sequence: int, begin: int) -> bool:
        memory = api.llama_get_memory(where)
        return bool(api.llama_memory_seq_rm(memory, sequence, begin, -1))


@llama_cpp.llama_log_callback
def _SILENT(_level: int, _text: bytes, _data: Any) -> None:  # noqa: N802  (kept from collection)
    pass


open = Opened
