"""transformers with PyTorch: dense weights, which are faster on a CPU than packed ones."""

import time
from itertools import count
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, GgufConfig, StaticCache

from decode_peers.cases import Room, tokens

__all__ = ["PACKAGES", "open"]

PACKAGES = ("transformers", "torch")
MOST_NEW = 128


class Opened:
    """A model, as it is or compiled with a cache of a fixed size."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        torch.set_num_threads(settings["threads"])
        self._model = AutoModelForCausalLM.from_pretrained(
            str(model.parent),
            gguf_file=model.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=getattr(torch, settings["dtype"]),
        ).eval()
        self._is_compiled = settings.get("compile", False)
        self._step = torch.compile(self._model, dynamic=False) if self._is_compiled else self._model
        self._prompted: dict[tuple[int, int], Any] = {}
        self._unseen = count(5000)

    @torch.no_grad()
    def decode(self, sequences: int, context: int, new: int) -> float:
        """Return the seconds of a step; the cache of the prompt is that of earlier turns."""
        cache = self._with_prompts(sequences, context)
        ids = torch.tensor([[token] for token in tokens(sequences)])
        start = time.perf_counter()
        for _ in range(new):
            ids = self._step(ids, past_key_values=cache).logits[:, -1:].argmax(-1)
        return (time.perf_counter() - start) / new

    @torch.no_grad()
    def prompt(self, length: int) -> float:
        """Return the seconds until the first token."""
        start = time.perf_counter()
        ids = torch.tensor([tokens(length, next(self._unseen))])
        self._model(ids, use_cache=True, logits_to_keep=1).logits.argmax(-1).item()
        return time.perf_counter() - start

    def _with_prompts(self, sequences: int, length: int) -> Any:
        """Return a cache that has the prompts and nothing more."""
        cache = self._prompted.get((sequences, length))
        if cache is None:
            config = self._model.config
            cache = (
                StaticCache(config, length + MOST_NEW)
                if self._is_compiled
                else DynamicCache(config=config)
            )
            ids = torch.tensor([tokens(length, sequence) for sequence in range(sequences)])
            self._model(ids, past_key_values=cache, logits_to_keep=1)
            self._prompted[sequences, length] = cache
        elif self._is_compiled:
            for layer in cache.layers:
                layer.cumulative_length.fill_(length)
        else:
            cache.crop(length - cache.get_seq_length())
        return cache


open = Opened
