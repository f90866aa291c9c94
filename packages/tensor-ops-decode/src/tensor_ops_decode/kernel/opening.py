"""What a kernel runs: the model of a file, or the layers that were described, as one value."""

import functools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tensor_ops_decode.executors.choice import ExecutorChoice
from tensor_ops_decode.executors.memory_plan import PlannedProgram
from tensor_ops_decode.executors.packed_file import cache_folder
from tensor_ops_decode.kernel import stand_in
from tensor_ops_decode.kernel.arguments import DEFAULT_SEQ_LENGTH, KernelSettings, check_end_tokens
from tensor_ops_decode.kernel.export import ModelFacts
from tensor_ops_decode.kernel.layers import Layers
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.decoder import program_of
from tensor_ops_decode.models.generation_settings import end_tokens_of, problem_with_end_tokens
from tensor_ops_decode.program import Limits, Program
from tensor_ops_decode.program.quantized import quantized_program, warn_if_nothing_is_quantized
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.weights import FileFormatError, Weights, open_weights

__all__ = ["KernelModel", "described_model", "open_model", "rank_name"]

# A longer sequence must be asked for, whatever a file claims: beside a small model there is memory
# for billions of positions, and computing the rotary tables takes time for each.
_MOST_BY_DEFAULT = 2**20

# What may decide on the longest sequence; where it is something else on each rank, the first.
_DECIDED_BY = ("memory", "max_seq_length", "the model", "the default")


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
    options : mapping
        Those of the executor that it is not left to decide on.
    activations_by : str
        What decided on what activations are rounded to.
    weights : Weights or None
        Of the model.
    cache : Path or None
        The folder in which packed weights are kept.
    """

    name: str
    planned: PlannedProgram
    facts: ModelFacts
    length_by: str
    options: Mapping[str, object]
    activations_by: str
    weights: Weights | None = None
    cache: Path | None = None


def open_model(
    model: str | os.PathLike[str] | Weights,
    settings: KernelSettings,
    choice: ExecutorChoice,
    ranks: Communicator,
) -> KernelModel:
    """Open a model, with a program for sequences as long as memory has room for.

    All `ranks` have the same limits, for which there is room on each.
    """
    weights = open_weights(model) if isinstance(model, (str, os.PathLike)) else model
    if settings.cache and not weights.files:
        raise ValueError(
            "cache keeps the packed weights of files; leave it out beside ArrayWeights"
        )
    cache = cache_folder(settings.cache, weights.path)
    decoder, types = decoder_of(weights), (settings.quantize, settings.quantize_head)
    end_tokens = settings.end_tokens
    if end_tokens is None:  # the tokens in the files that the model can choose
        if problem := problem_with_end_tokens(weights):
            raise FileFormatError(problem)
        found = end_tokens_of(weights)
        end_tokens = frozenset(token for token in found if token < decoder.vocabulary)
    check_end_tokens(end_tokens, decoder.vocabulary)

    @functools.lru_cache(maxsize=4)
    def whole(limits: Limits) -> Program:
        program = program_of(decoder, weights, limits, settings.cache_dtype)
        return quantized_program(program, *types)

    def planned(limits: Limits, rank: int) -> PlannedProgram:
        return PlannedProgram(whole(limits), choice, settings.num_workers, ranks, rank)

    made, length_by = _program_that_fits_all(settings, planned, decoder.usual_context, ranks)
    warn_if_nothing_is_quantized(made.program, *types)
    made.require_memory()
    metadata = weights.metadata
    start = metadata.get("tokenizer.ggml.bos_token_id", metadata.get("bos_token_id"))
    facts = ModelFacts(
        name=Path(weights.path).name,
        logits="logits",
        tokens="next",
        start_token=start if type(start) is int and 0 <= start < decoder.vocabulary else 0,
        end_tokens=end_tokens,
        activations=settings.activations,
    )
    activations, activations_by = _activations_of(weights, settings, made)
    options = replace(settings, activations=activations).options
    name = str(weights.path)
    return KernelModel(name, made, facts, length_by, options, activations_by, weights, cache)


def _activations_of(
    weights: Weights, settings: KernelSettings, planned: PlannedProgram
) -> tuple[str | None, str]:
    """Return what activations are rounded to, None for the executor's default, and what decided.

    The model's own type is the default where the executor has instructions for it. Elsewhere the
    rounding would cost accuracy and no step would be faster.
    """
    if settings.activations is not None:
        return settings.activations, settings.activations_by
    if weights.activations is None or settings.quantize is not None:
        return None, settings.activations_by
    executor = planned.executor
    has_products = getattr(executor.module, "has_bfloat16_products", None)
    if has_products is None:
        return None, settings.activations_by
    if not has_products():
        return None, f"the default, since {executor.backend} has no instructions for bfloat16 here"
    return weights.activations, f"the model, since {executor.backend} has instructions for it here"


def _program_that_fits_all(
    settings: KernelSettings,
    planned: Callable[[Limits, int], PlannedProgram],
    context: int,
    ranks: Communicator,
) -> tuple[PlannedProgram, str]:
    """Return what `_program_that_fits` does, with the least length and pages of all ranks."""
    if ranks.world_size == 1:
        return _program_that_fits(settings, lambda limits: planned(limits, 0), context)

    def plan(rank: int) -> tuple[int, ...]:
        made, decided_by = _program_that_fits(settings, lambda each: planned(each, rank), context)
        limits = made.program.limits
        return limits.max_seq_length, limits.num_pages, _DECIDED_BY.index(decided_by)

    length, num_pages, decided_by = ranks.least_of(plan)
    limits = replace(settings.limits(length), num_pages=num_pages)
    return planned(limits, ranks.rank), _DECIDED_BY[decided_by]


def _program_that_fits(
    settings: KernelSettings, planned: Callable[[Limits], PlannedProgram], context: int
) -> tuple[PlannedProgram, str]:
    """Return a model's program, and what decided on its longest sequence.

    Without a length in the settings, it is the longest that memory and the model, whose own is
    `context`, have room for, up to 2**20: caches may take half of the memory that the weights
    leave. Requests share that half where they cannot all be so long.
    """
    length = settings.max_seq_length
    made = planned(settings.limits(context if length is None else length))
    bounds = made.program.limits
    num_pages = _pages_that_fit(made, planned)
    decided_by = "max_seq_length"
    if length is None:
        most = DEFAULT_SEQ_LENGTH if num_pages is None else num_pages * bounds.page_size
        reason = "the default" if num_pages is None or most > _MOST_BY_DEFAULT else "memory"
        most = min(most, _MOST_BY_DEFAULT)
        length, decided_by = (context, "the model") if context <= most else (most, reason)
        bounds = settings.limits(length)
    if settings.max_num_pages is None and num_pages is not None:
        most = max(num_pages, bounds.pages_per_request)
        bounds = replace(bounds, num_pages=min(bounds.num_pages, most))
    return made if made.program.limits == bounds else planned(bounds), decided_by


def _pages_that_fit(
    made: PlannedProgram, planned: Callable[[Limits], PlannedProgram]
) -> int | None:
    """Return how many pages half of the memory has room for that a program without pages leaves.

    Where all pages of the given program fit, it is at least their number.
    """
    allowed, bounds = made.allowed, made.program.limits
    if allowed is None or not made.program.caches:
        return None
    pages = max(bounds.num_pages, bounds.pages_per_request)
    if pages == bounds.num_pages and 2 * made.total <= allowed:
        return pages
    # What a page takes, with the longer tables and the other logits that may be changed of a longer
    # sequence: the mean of as many as one request needs.
    pages = -(-min(bounds.max_seq_length, _MOST_BY_DEFAULT) // bounds.page_size)
    length = min(pages * bounds.page_size, bounds.max_seq_length)
    first = planned(replace(bounds, max_seq_length=1, num_pages=1)).total
    more = planned(replace(bounds, max_seq_length=length, num_pages=1 + pages)).total
    if math.isinf(more):
        return 1
    page = max(1, int(more - first) // pages)
    return max(1, (allowed - int(first) + page) // 2 // page)


def described_model(
    layers: Layers,
    settings: KernelSettings,
    choice: ExecutorChoice,
    ranks: Communicator,
) -> KernelModel:
    """Return the model of layers by hand, or the stand-in if there are none."""
    if layers.is_empty:
        stand_in.add_layers(layers)
    program, logits, tokens = layers.described_program()
    end_tokens = settings.end_tokens or frozenset()
    check_end_tokens(end_tokens, program.values[logits].columns)
    facts = ModelFacts(layers.name, logits, tokens, 0, end_tokens, settings.activations)
    planned = PlannedProgram(program, choice, settings.num_workers, ranks)
    decided_by = settings.length_by, settings.options, settings.activations_by
    return KernelModel(layers.name, planned, facts, *decided_by)


def rank_name(model: str | os.PathLike[str] | Weights | None) -> str:
    """Return what the ranks of a model in one process find each other by."""
    if model is None:
        return "layers"
    return os.fspath(model if isinstance(model, (str, os.PathLike)) else model.path)
