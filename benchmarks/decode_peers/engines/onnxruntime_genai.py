"""ONNX Runtime GenAI, on a folder that its model builder made of the dense weights in float32."""

import json
import time
from itertools import count
from pathlib import Path
from typing import Any

import onnxruntime_genai

from decode_peers.cases import Room, tokens

__all__ = ["PACKAGES", "open"]

PACKAGES = ("onnxruntime-genai",)


class Opened:
    """A model."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        config = onnxruntime_genai.Config(str(model))
        options = {"intra_op_num_threads": settings["threads"]}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = onnxruntime_genai.Model(config)
        self._unseen = count(5000)

    def decode(self, sequences: int, context: int, new: int) -> float:
        """Return the seconds of a step."""
        prompts = [tokens(context, sequence) for sequence in range(sequences)]
        generator = self._generator(prompts, context + new + 1)
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(new):
            generator.generate_next_token()
        return (time.perf_counter() - start) / new

    def prompt(self, length: int) -> float:
        """Return the seconds until the first token."""
        start = time.perf_counter()
        self._generator([tokens(length, next(self._unseen))], length + 1).generate_next_token()
        return time.perf_counter() - start

    def _generator(self, prompts: list[list[int]], length: int) -> Any:
        """Return a generator that has read prompts."""
        params = onnxruntime_genai.GeneratorParams(self._model)
        sizes = {"max_length": length, "min_length": length, "batch_size": len(prompts)}
        params.set_search_options(do_sample=False, **sizes)
        generator = onnxruntime_genai.Generator(self._model, params)
        generator.append_tokens(prompts if len(prompts) > 1 else prompts[0])
        return generator


open = Opened
