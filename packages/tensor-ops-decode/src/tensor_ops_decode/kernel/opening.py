"""What a kernel runs: the model of a file, or the layers that were described, as one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensor_ops_decode.executors.choice import ExecutorChoice
from tensor_ops_decode.executors.memory_plan import (
    PlannedProgram,
    planned_program,
    program_that_fits,
)
from tensor_ops_decode.executors.packed_file import cache_folder
from tensor_ops_decode.kernel import stand_in
from tensor_ops_decode.kernel.arguments import Settings, check_end_tokens
from tensor_ops_decode.kernel.export import ModelFacts
from tensor_ops_decode.kernel.layers import Layers
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.decoder import program_of
from tensor_ops_decode.models.generation_settings import end_tokens_of
from tensor_ops_decode.program import Limits
from tensor_ops_decode.program.quantized import quantized_program, warn_if_nothing_is_quantized
from tensor_ops_decode.weights import Weights, open_weights

__all__ = ["DESCRIBED", "KernelModel", "described_model", "open_model"]

#: What layers that are described by hand are called.
DESCRIBED = "the layers described by hand"


@dataclass(frozen=True)
class KernelModel:
    """What a kernel runs; nothing is packed yet.

    Attributes
    ----------
    name : str
    planned : PlannedProgram
    facts : ModelFacts
    length_by : str
        What decided on the longest sequence.
    weights : Weights or None
        The files of the model.
    cache : Path or None
        The folder in which packed weights are kept.
    attached : mapping of str to ndarray
        The weights of layers by hand.
    """

    name: str
    planned: PlannedProgram
    facts: ModelFacts
    length_by: str
    weights: Weights | None = None
    cache: Path | None = None
    attached: Mapping[str, Array] = field(default_factory=dict)


def open_model(
    model: str | os.PathLike[str] | Weights, settings: Settings, choice: ExecutorChoice
) -> KernelModel:
    """Open the model of a file, with a program for sequences as long as memory has room for."""
    weights = open_weights(model) if isinstance(model, (str, os.PathLike)) else model
    cache = cache_folder(settings.cache, weights.path)
    decoder, types = decoder_of(weights), (settings.quantize, settings.quantize_head)
    end_tokens = settings.end_tokens
    if end_tokens is None:  # of those in the files, what the model can choose
        found = end_tokens_of(weights)
        end_tokens = frozenset(token for token in found if token < decoder.vocabulary)
    check_end_tokens(end_tokens, decoder.vocabulary)

    def planned(limits: Limits) -> PlannedProgram:
        program = program_of(decoder, weights, limits, settings.cache_dtype)
        return planned_program(quantized_program(program, *types), choice, settings.num_workers)

    found_program, length_by = program_that_fits(
        settings.limits,
        planned,
        decoder.usual_context,
        settings.max_seq_length,
        settings.max_num_pages,
    )
    warn_if_nothing_is_quantized(found_program.program, *types)
    found_program.require_memory()
    facts = ModelFacts(
        name=Path(weights.path).name,
        logits="logits",
        tokens="next",
        start_token=_start_token_of(weights.metadata),
        end_tokens=end_tokens,
        activations=settings.activations,
    )
    return KernelModel(str(weights.path), found_program, facts, length_by, weights, cache)


def described_model(layers: Layers, settings: Settings, choice: ExecutorChoice) -> KernelModel:
    """Return the model of layers by hand, or the stand-in if there are none."""
    name = DESCRIBED
    if layers.is_empty:
        name, layers = stand_in.DESCRIPTION, Layers(layers.limits, settings.cache_dtype)
        stand_in.add_layers(layers)
    program, logits, tokens = layers.described_program()
    end_tokens = settings.end_tokens or frozenset()
    check_end_tokens(end_tokens, program.values[logits].columns)
    facts = ModelFacts(name, logits, tokens, 0, end_tokens, settings.activations)
    planned = planned_program(program, choice, settings.num_workers)
    return KernelModel(name, planned, facts, settings.length_by, attached=layers.attached)


def _start_token_of(metadata: Mapping[str, Any]) -> int:
    """Return the token that begins a text, as the model's files say; 0 if they do not."""
    start = metadata.get("tokenizer.ggml.bos_token_id", metadata.get("bos_token_id"))
    return start if isinstance(start, int) else 0
