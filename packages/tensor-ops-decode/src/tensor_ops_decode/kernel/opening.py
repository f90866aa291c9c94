"""The model that a kernel runs: that of a file, or the layers that were described, as one value."""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensor_ops import BackendError
from tensor_ops_decode.executors.choice import Executor, ExecutorChoice
from tensor_ops_decode.executors.memory_plan import PlannedProgram
from tensor_ops_decode.executors.packed_file import PACKED, PackedFile, cache_folder
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.kernel.arguments import DEFAULT_SEQ_LENGTH, KernelSettings
from tensor_ops_decode.kernel.export import ModelFacts
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.adapter import open_adapter
from tensor_ops_decode.models.assembly import has_draft, program_of
from tensor_ops_decode.models.embedding_settings import says_how_to_pool
from tensor_ops_decode.models.generation_settings import end_tokens_of, problem_with_end_tokens
from tensor_ops_decode.program import Limits, Program
from tensor_ops_decode.program.adapted import adapted_program
from tensor_ops_decode.program.quantized import quantized_program, warn_if_nothing_is_quantized
from tensor_ops_decode.ranks.communicator import Communicator
from tensor_ops_decode.weights import FileFormatError, Weights, open_weights

__all__ = ["KernelModel", "described_model", "open_model"]

# A longer sequence must be asked for, whatever a file claims: beside a small model there is memory
# for billions of positions, and computing the rotary tables takes time for each.
_MOST_BY_DEFAULT = 2**20

# Sources of the longest sequence; where it is something else on each rank, the first.
_DECIDED_BY = ("memory", "max_seq_length", "the model", "the default")


@dataclass(frozen=True)
class KernelModel:
    """The model that a kernel runs; nothing is packed yet.

    `length_by` is what decided on the longest sequence, and `activations_by` on what activations
    are rounded to. The options are those of the executor that it is not left to decide on. The
    cache is the folder in which packed weights are kept. The logits of a model without a head mean
    nothing. The output `states` has what embeddings are pooled from. The `adapter` is in words.
    """

    name: str
    planned: PlannedProgram
    facts: ModelFacts
    length_by: str
    options: Mapping[str, object]
    activations_by: str
    weights: Weights | None = None
    cache: Path | None = None
    guesses_by: str | None = None
    has_head: bool = True
    states: str | None = None
    adapter: str | None = None

    def compiled(
        self, attached: Mapping[str, Array], progress: Callable[[int, int], None] | None
    ) -> tuple[Any, str | None]:
        """Return the executable, and in words what was done about a file of packed weights.

        Without `progress` and `cache`, the weights of files are packed while the first steps run,
        where the backend can. Raises MemoryError if there is too little memory, a ValueError if
        weights are to be kept by a backend that does not pack them, and a ConfigError if others can
        write their file.
        """
        planned, weights, workers = self.planned, self.weights, self.planned.num_workers
        planned.require_memory(self.options)
        program, module = planned.program, planned.executor.module
        packs = hasattr(module, "packed_layout")
        among = {"ranks": planned.ranks} if planned.ranks.world_size > 1 else {}

        def made(arrays: TensorArrays, **packed: Any) -> Any:
            given = {"num_workers": workers, "options": self.options, "progress": progress}
            try:
                return module.compile_program(planned.text, arrays, **given, **among, **packed)
            except RuntimeError as error:
                if type(error) is not RuntimeError:
                    raise
                # Native code raises this where the system does not give what was asked for.
                raise BackendError(str(error)) from error

        arrays_of = functools.partial(TensorArrays, program, attached, weights)
        if self.cache is None or weights is None:
            # Arrays of the caller may change once this has returned; a model's files may not.
            is_file = weights is not None and weights.files
            in_steps = {"packs_in_steps": True} if is_file and packs and progress is None else {}
            return made(arrays_of(), **in_steps), None
        if not packs:
            raise ValueError(
                f"the backend {planned.executor.backend!r} does not pack weights; leave cache= "
                "out, or choose another backend"
            )
        checksum = functools.partial(module.packed_checksum, num_workers=workers)
        layout = module.packed_layout(planned.text)
        file = PackedFile(self.cache, weights, program, layout, checksum)
        if (found := file.open()) is not None:
            packed = found.pop(PACKED)
            return made(arrays_of(found), packed=packed), f"mapped from {file.path}"
        arrays = arrays_of()
        executable = made(arrays)
        problem = file.write(executable, arrays)
        return executable, problem or f"written to {file.path}"


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
    cache, decoder = cache_folder(settings.cache, weights.path), decoder_of(weights)
    only_files_say = settings.end_tokens is None and weights.end_tokens is None
    if only_files_say and (problem := problem_with_end_tokens(weights)):
        raise FileFormatError(problem)
    found = end_tokens_of(weights) | (weights.end_tokens or set())
    end_tokens = settings.end_tokens_among(decoder.vocabulary, found)
    adapter = None
    if settings.adapter is not None:
        if ranks.world_size > 1:
            raise ValueError(
                f"adapter needs one rank, and there are {ranks.world_size}; merge it into the "
                "model with peft's merge_and_unload(), or leave out world_size="
            )
        adapter = open_adapter(settings.adapter, decoder, weights)
    quantize = settings.quantize, settings.quantize_head
    embeddings = settings.embeddings
    if embeddings is None:
        embeddings = says_how_to_pool(weights) or not decoder.has_head

    @functools.cache
    def whole(limits: Limits, drafts: bool) -> Program:
        given = decoder, weights, limits, settings.cache_dtype
        guessed = settings.draft_vocab_size or decoder.vocabulary if drafts else 0
        program = program_of(*given, guessed=guessed, embeddings=embeddings)
        if adapter is not None:
            program = adapted_program(program, adapter.pairs)
        return quantized_program(program, *quantize)

    drafts, guesses_by = False, None
    if settings.limits.guesses_per_request:
        guesses_by = "prompt lookup, since the model has no draft"
        if has_draft(decoder, weights):
            smallest = settings.limits_for(settings.page_size)
            executor = PlannedProgram(whole(smallest, False), choice, None, ranks).executor
            reason = executor.module.supports_program(whole(smallest, True).to_json())
            (drafts,) = map(bool, ranks.least_of(lambda rank: (int(reason is None),)))
            guesses_by = "the draft of the model" if drafts else f"prompt lookup, since {reason}"

    @functools.cache
    def planned(limits: Limits, rank: int) -> PlannedProgram:
        return PlannedProgram(whole(limits, drafts), choice, settings.num_workers, ranks, rank)

    if decoder.has_states:
        settings.add_states(0)
        snapshots = settings.max_num_snapshots
        if snapshots is None:
            most = 2 + 2 * settings.limits.max_requests
            smallest = replace(settings.limits_for(settings.page_size), num_pages=1)
            (snapshots,) = ranks.least_of(
                lambda rank: (planned(smallest, rank).snapshots_that_fit(most),)
            )
        settings.add_states(snapshots)

    def plan(rank: int) -> tuple[int, ...]:
        context, asked = decoder.usual_context, settings.limits
        if settings.max_seq_length is None:
            asked = settings.limits_for(min(context, _MOST_BY_DEFAULT))
        limits, decided_by = _limits_that_fit(settings, context, planned(asked, rank))
        if limits != asked:  # a program of about these limits says more exactly what they take
            limits, decided_by = _limits_that_fit(settings, context, planned(limits, rank))
        return limits.max_seq_length, limits.num_pages, _DECIDED_BY.index(decided_by)

    length, num_pages, decided_by = ranks.least_of(plan)
    made = planned(replace(settings.limits_for(length), num_pages=num_pages), ranks.rank)
    warn_if_nothing_is_quantized(made.program, *quantize)
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
    decided = _DECIDED_BY[decided_by], *_options_of(weights, settings, made.executor)
    return KernelModel(
        str(weights.path),
        made,
        facts,
        *decided,
        weights if adapter is None else adapter.weights,
        cache,
        guesses_by,
        has_head=decoder.has_head,
        states="norm" if "norm" in made.program.outputs else None,
        adapter=None if adapter is None else str(adapter),
    )


def _options_of(
    weights: Weights, settings: KernelSettings, executor: Executor
) -> tuple[dict[str, object], str]:
    """Return the executor's options, and what decided on what activations are rounded to.

    The model's own type is the default where the executor multiplies it faster. Elsewhere the
    rounding would cost accuracy and no step would be faster.
    """
    has_products = getattr(executor.module, "has_bfloat16_products", None)
    is_asked_for = settings.activations is not None or settings.quantize is not None
    if is_asked_for or weights.activations is None or has_products is None:
        return settings.options, settings.activations_by
    if not has_products():
        reason = f"since {executor.backend} multiplies bfloat16 no faster here"
        return settings.options, f"the default, {reason}"
    options = settings.options | {"activations": weights.activations}
    return options, f"the model, since {executor.backend} multiplies it faster here"


def _limits_that_fit(
    settings: KernelSettings, context: int, made: PlannedProgram
) -> tuple[Limits, str]:
    """Return the limits of a model's program, and what decided on its longest sequence.

    Without a length in the settings, it is the longest that memory and the model, whose own is
    `context`, have room for, up to 2**20: caches may take half of the memory that the weights
    leave. Requests share that half where they cannot all be so long. The program `made` is for the
    length that is asked for, or for the longest that there may be.
    """
    limits, decided_by = made.program.limits, "max_seq_length"
    num_pages = made.pages_that_fit
    if settings.max_seq_length is None:
        most = DEFAULT_SEQ_LENGTH if num_pages is None else num_pages * limits.page_size
        is_default = num_pages is None or most >= _MOST_BY_DEFAULT
        length, decided_by = min(most, _MOST_BY_DEFAULT), "the default" if is_default else "memory"
        if context <= length:
            length, decided_by = context, "the model"
        limits = settings.limits_for(length)
    if settings.max_num_pages is None and num_pages is not None:
        most = max(num_pages, limits.pages_per_request)
        limits = replace(limits, num_pages=min(limits.num_pages, most))
    return limits, decided_by


def described_model(
    name: str,
    described: tuple[Program, str, str],
    settings: KernelSettings,
    choice: ExecutorChoice,
    ranks: Communicator,
) -> KernelModel:
    """Return the model of layers by hand: a program, and the names of its logits and tokens."""
    program, logits, tokens = described
    end_tokens = settings.end_tokens_among(program.values[logits].columns)
    facts = ModelFacts(name, logits, tokens, 0, end_tokens, settings.activations)
    planned = PlannedProgram(program, choice, settings.num_workers, ranks)
    decided_by = settings.length_by, settings.options, settings.activations_by
    return KernelModel(name, planned, facts, *decided_by)
