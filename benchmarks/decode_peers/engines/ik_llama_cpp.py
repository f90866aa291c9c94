"""ik_llama.cpp by its own interface, most of which ik-llama-cpp-python has.

The settings are fields of the parameters of models and contexts, by name; a field that both have is
set in both. Only contexts of one sequence have flash attention: with several, version 0.1.5 fails
its assertion `S > 0`, which ends the process.
"""

import ctypes
from pathlib import Path
from typing import Any

from ik_llama_cpp import _ctypes_api as api

from decode_peers.cases import Room
from decode_peers.engines.llama_interface import BATCH, Llama

__all__ = ["PACKAGES", "open"]

PACKAGES = ("ik-llama-cpp-python",)

# Functions that the package does not bind.
_remove = api._lib.llama_kv_cache_seq_rm
_remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
_remove.restype = ctypes.c_bool


class Opened(Llama):
    """A model with the settings of its engine."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        self._settings = settings
        api.llama_backend_init()
        params = api.llama_model_default_params()
        self._set(params)
        self._model = api.llama_model_load_from_file(str(model).encode(), params)
        if not self._model:
            raise ValueError("ik_llama.cpp does not open the file")
        vocabulary = api.llama_model_get_vocab(self._model)
        super().__init__(api, api.llama_vocab_n_tokens(vocabulary))

    def new_context(self, sequences: int, positions: int) -> Any:
        params = api.llama_context_default_params()
        params.n_ctx = positions
        params.n_seq_max = sequences
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = self._settings["threads"]
        self._set(params)
        params.flash_attn = sequences == 1 and params.flash_attn
        return api.llama_init_from_model(self._model, params)

    def forget(self, where: Any, sequence: int, begin: int) -> bool:
        return bool(_remove(where, sequence, begin, -1))

    def _set(self, params: Any) -> None:
        names = {name for name, _ in params._fields_}
        for name, value in self._settings.items():
            if name in names:
                setattr(params, name, value)


open = Opened
