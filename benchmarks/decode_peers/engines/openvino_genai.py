"""OpenVINO GenAI, which reads GGUF files itself."""

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from decode_peers.cases import Room, tokens

__all__ = ["PACKAGES", "open"]

PACKAGES = ("openvino-genai", "openvino")
MILLION = 1e6


class Opened:
    """A pipeline, whose own counters say how long its steps took."""

    def __init__(self, model: Path, settings: dict[str, Any], room: Room) -> None:
        self._pipeline = openvino_genai.LLMPipeline(
            str(model), "CPU", INFERENCE_NUM_THREADS=settings["threads"]
        )
        self._unseen = count(5000)

    def decode(self, sequences: int, context: int, new: int) -> float:
        """Return the seconds of a step."""
        prompts = [tokens(context, sequence) for sequence in range(sequences)]
        made = self._generate(prompts, new + 1)
        # Each sequence has a duration for each step, divided by the number of sequences.
        return float(sum(made.raw_metrics.m_durations)) / MILLION / new

    def prompt(self, length: int) -> float:
        """Return the seconds until the first token."""
        return self.prompts(1, length)

    def prompts(self, sequences: int, length: int) -> float:
        """Return the seconds until the first token of each of several prompts."""
        made = self._generate([tokens(length, next(self._unseen)) for _ in range(sequences)], 1)
        return float(made.get_ttft().mean) / 1000

    def _generate(self, prompts: list[list[int]], new: int) -> Any:
        config = openvino_genai.GenerationConfig(
            max_new_tokens=new, ignore_eos=True, do_sample=False
        )
        ids = np.array(prompts, np.int64)
        inputs = openvino_genai.TokenizedInputs(
            openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))
        )
        return self._pipeline.generate(inputs, config).perf_metrics


open = Opened
