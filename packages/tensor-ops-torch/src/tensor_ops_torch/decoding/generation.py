"""`generate` as transformers has it, with the steps of a kernel.

transformers prepares a call: it merges settings, makes logits processors and stopping criteria,
and checks lengths. The loop over tokens, which it lets others replace, is the one below.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from transformers import (
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessor,
    MaxLengthCriteria,
    PretrainedConfig,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.generation import BaseStreamer, GenerateDecoderOnlyOutput

from tensor_ops import BackendFallbackWarning
from tensor_ops.extension import warn_caller
from tensor_ops_decode import PersistentKernel
from tensor_ops_torch.decoding.generation_settings import (
    RefusedSettingError,
    asked_settings,
    refusal,
)
from tensor_ops_torch.decoding.kernel_rows import ChosenRows, GivenRows
from tensor_ops_torch.decoding.kernel_sampling import sampling_settings
from tensor_ops_torch.decoding.preparation import preparing_model
from tensor_ops_torch.decoding.prompts import as_batch, row_starts, tokens_of_rows

__all__ = ["GeneratingModel", "decode", "generate"]

# For how long steps follow one another before a streamer gets their tokens.
_SECONDS_OF_STEPS = 0.03

Output: TypeAlias = torch.Tensor | GenerateDecoderOnlyOutput


class GeneratingModel(Protocol):
    """What `generate` needs: a kernel, and what it was made from.

    Attributes
    ----------
    kernel : PersistentKernel or None
        Compiled; without one, the model's own ``generate`` does everything.
    model : PreTrainedModel or None
        As the caller holds it, if anything does.
    config : PretrainedConfig
    generation_config : GenerationConfig
        What a call goes by where it says nothing.
    device : torch.device
        Where tensors go that are made of lists.
    fallback : bool
        Whether the model's own ``generate`` does what is refused here, with a warning.
    lock : threading.RLock
        Held by the thread that generates.
    """

    config: PretrainedConfig
    generation_config: GenerationConfig
    device: torch.device
    fallback: bool
    lock: threading.RLock

    @property
    def kernel(self) -> PersistentKernel | None: ...

    @property
    def model(self) -> Any: ...

    def check_unchanged(self) -> None:
        """Raise an error if the model is not the one any more that the kernel was made of."""


def generate(
    decoder: GeneratingModel,
    inputs: Any = None,
    generation_config: GenerationConfig | None = None,
    logits_processor: Sequence[LogitsProcessor] | None = None,
    stopping_criteria: Sequence[StoppingCriteria] | None = None,
    prefix_allowed_tokens_fn: Callable[[int, torch.Tensor], list[int]] | None = None,
    synced_gpus: bool | None = None,
    assistant_model: PreTrainedModel | None = None,
    streamer: BaseStreamer | None = None,
    negative_prompt_ids: torch.Tensor | None = None,
    negative_prompt_attention_mask: torch.Tensor | None = None,
    custom_generate: Any = None,
    *,
    tokenizer: Any = None,
    **kwargs: Any,
) -> Output:
    """Continue prompts, as ``generate`` of transformers does.

    Parameters
    ----------
    inputs : tensor or lists of int, optional
        The prompts, a row each; also as ``input_ids=``. Lists of different lengths are padded at
        the left; a tensor with padding comes with its ``attention_mask``. Without any, an answer
        begins with the token that begins a text.
    generation_config : GenerationConfig, optional
        `generation_settings.SETTINGS` says what becomes of each of its fields.
    logits_processor, stopping_criteria, prefix_allowed_tokens_fn : optional
        In Python, to which each step returns then.
    streamer : BaseStreamer, optional
        It gets the prompt, then each token once.
    negative_prompt_ids, negative_prompt_attention_mask : tensor, optional
        For ``guidance_scale``.
    synced_gpus, assistant_model, custom_generate : optional
        Refused.
    tokenizer : optional
        For ``stop_strings``.
    **kwargs
        Fields of ``GenerationConfig``, and ``attention_mask``.

    Returns
    -------
    tensor of int64, shape (rows, length)
        Prompts and answers, padded at the right; or with ``return_dict_in_generate`` a
        ``GenerateDecoderOnlyOutput``.

    Raises
    ------
    RefusedSettingError
        If a setting asks for what the kernel does not do.
    TypeError, ValueError
        If these are no prompts of the model, or the kernel has no room for answers so long.
    LogitsError
        If the logits of a row are NaN, or all minus infinity.

    Warns
    -----
    BackendFallbackWarning
        If the model's own ``generate`` runs, for a decoder that was made with ``fallback=True``.
    """
    decoder.check_unchanged()
    asked = asked_settings(
        decoder.generation_config,
        generation_config,
        {
            "synced_gpus": synced_gpus,
            "assistant_model": assistant_model,
            "custom_generate": custom_generate,
            **kwargs,
        },
    )
    refused = refusal(asked, has_model=decoder.model is not None)
    if refused is not None and not (decoder.kernel is None or decoder.fallback):
        raise refused
    if kwargs.get("past_key_values") is None:  # an old name, which alone makes transformers warn
        kwargs.pop("past_key_values", None)
    if inputs is None and kwargs.get("input_ids") is not None:
        inputs = kwargs.pop("input_ids")
    if inputs is not None:
        inputs, kwargs["attention_mask"] = as_batch(
            inputs, kwargs.get("attention_mask"), _pad_token(asked), decoder.device
        )
    prepared: dict[str, Any] = {
        "inputs": inputs,
        "logits_processor": logits_processor,
        "stopping_criteria": StoppingCriteriaList(stopping_criteria or ()),
        "prefix_allowed_tokens_fn": prefix_allowed_tokens_fn,
        "streamer": streamer,
        "negative_prompt_ids": negative_prompt_ids,
        "negative_prompt_attention_mask": negative_prompt_attention_mask,
        **kwargs,
    }
    kernel = decoder.kernel
    if kernel is None or refused is not None:
        if kernel is not None:
            message = f"{refused}; the model's own generate() runs instead"
            warn_caller(message, BackendFallbackWarning, "tensor_ops_torch")
        own = {"synced_gpus": synced_gpus, "custom_generate": custom_generate}
        own |= {"assistant_model": assistant_model, "tokenizer": tokenizer}
        own = {name: value for name, value in own.items() if value is not None}
        if (
            generation_config is None
            and decoder.generation_config != decoder.model.generation_config
        ):
            generation_config = decoder.generation_config
        return decoder.model.generate(generation_config=generation_config, **prepared, **own)

    if asked.get("stop_strings") is not None:
        # transformers passes no tokenizer on to a loop that is not its own.
        generation_config = copy.deepcopy(generation_config)
        criterion = _stop_strings(asked["stop_strings"], tokenizer, prepared["stopping_criteria"])
        prepared["stopping_criteria"] += criterion
        if generation_config is not None:
            generation_config.stop_strings = None
        if generation_config is None or decoder.generation_config.stop_strings is not None:
            prepared["stop_strings"] = None

    def loop(model: PreTrainedModel, input_ids: torch.Tensor, **more: Any) -> Output:
        return _continue(kernel, input_ids, streamer=streamer, **more)

    preparing = preparing_model(
        decoder.config, decoder.generation_config, decoder.device, decoder.model
    )
    with decoder.lock:
        return preparing.generate(
            generation_config=generation_config,
            custom_generate=loop,
            synced_gpus=False,
            **prepared,
        )


def decode(
    decoder: GeneratingModel,
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: Sequence[LogitsProcessor],
    stopping_criteria: Sequence[StoppingCriteria],
    generation_config: GenerationConfig,
    **model_kwargs: Any,
) -> Output:
    """Run the loop of ``model.generate(custom_generate=decoder)``, which has prepared all this.

    transformers keeps ``streamer``, ``assistant_model``, ``synced_gpus`` and ``tokenizer`` from
    such a loop: a streamer gets the prompt alone, and ``stop_strings`` raise.

    Raises
    ------
    ValueError
        If the model is another one than the decoder's.
    RefusedSettingError, TypeError, LogitsError
        As of `generate`.
    """
    decoder.check_unchanged()
    if decoder.kernel is None:
        raise ValueError("this decoder has no kernel to run; leave custom_generate= out")
    if not _is_around(decoder.model, model):
        raise ValueError(
            f"the decoder was made of another model than this {type(model).__name__}; make one of "
            "it, or call generate() of the model that it was made of"
        )
    cache = model_kwargs.pop("cache", None)
    if cache is not None and (cache.get_seq_length() or getattr(cache, "_is_user_defined", False)):
        model_kwargs["cache"] = cache  # it is the caller's, not one that transformers has made
    refused = refusal(asked_settings(GenerationConfig(), generation_config, model_kwargs))
    if refused is not None:
        raise refused
    with decoder.lock:
        return _continue(
            decoder.kernel,
            input_ids,
            logits_processor,
            stopping_criteria,
            generation_config,
            **model_kwargs,
        )


def _continue(
    kernel: PersistentKernel,
    input_ids: torch.Tensor,
    logits_processor: Sequence[LogitsProcessor],
    stopping_criteria: Sequence[StoppingCriteria],
    generation_config: GenerationConfig,
    streamer: BaseStreamer | None = None,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **model_kwargs: Any,
) -> Output:
    """Return what follows prompts, from all that transformers has prepared."""
    unknown = sorted(
        name
        for name, value in model_kwargs.items()
        if value is not None and name not in ("cache", "logits_to_keep", "use_cache")
    )
    if unknown:
        raise RefusedSettingError(
            f"{unknown[0]}= is refused: the kernel takes tokens and their attention_mask, and "
            "nothing else that the model's forward knows",
            unknown[0],
        )
    starts = row_starts(input_ids, attention_mask)
    _check_positions(position_ids, starts, input_ids.shape[1])
    prompts, config = tokens_of_rows(input_ids, starts), generation_config
    max_lengths = [each.max_length for each in stopping_criteria if _is(each, MaxLengthCriteria)]
    longest = kernel.program.limits.longest
    most = min(max_lengths, default=longest + 1) - input_ids.shape[1]
    is_dict = bool(config.return_dict_in_generate)
    keeps_scores = is_dict and (config.output_scores or config.output_logits)
    settings = sampling_settings(logits_processor, bool(config.do_sample), starts)
    if keeps_scores or settings is None:
        return _chosen_in_python(
            GivenRows(kernel, prompts, most),
            input_ids,
            logits_processor,
            stopping_criteria,
            config,
            streamer,
        )
    tokens = _chosen_by_kernel(
        kernel, input_ids, prompts, settings, most, stopping_criteria, config, streamer
    )
    return GenerateDecoderOnlyOutput(sequences=tokens) if is_dict else tokens


def _chosen_by_kernel(
    kernel: PersistentKernel,
    input_ids: torch.Tensor,
    prompts: list[list[int]],
    settings: dict[str, float],
    max_new_tokens: int,
    stopping_criteria: Sequence[StoppingCriteria],
    config: GenerationConfig,
    streamer: BaseStreamer | None,
) -> torch.Tensor:
    """Return prompts with the tokens that the kernel chooses after them."""
    ends, vocabulary = _end_tokens(stopping_criteria), kernel.program.values["logits"].columns
    pads, pad_token = _pads(stopping_criteria), _pad_token(vars(config), ends)
    known = [token for token in ends if 0 <= token < vocabulary]
    how = {**settings, "max_new_tokens": max_new_tokens, "end_tokens": known}
    rows = [{**how, "seed": seed} for seed in _seeds(len(prompts), "temperature" in settings)]
    criteria = StoppingCriteriaList(
        each for each in stopping_criteria if not _is(each, MaxLengthCriteria, EosTokenCriteria)
    )
    # A step after one that a criterion ends would be in vain.
    most_steps = 1 if criteria else max_new_tokens
    seconds = math.inf if streamer is None else _SECONDS_OF_STEPS
    done = torch.zeros(len(prompts), dtype=torch.bool, device=input_ids.device)
    columns: list[list[int]] = []
    tokens = input_ids
    in_step = bool(criteria) or streamer is not None
    with ChosenRows(kernel, prompts, rows, in_step=in_step) as chosen:
        for column in chosen.columns(most_steps, seconds, pad_token):
            columns.append(column)
            if streamer is not None:
                streamer.put(torch.tensor(column))
            if criteria:
                tokens = _joined(input_ids, columns)
                done = done | criteria(tokens, None)
                if not pads:
                    if done.all():
                        break
                    continue
                for row in torch.nonzero(done).flatten().tolist():
                    chosen.cut(row, len(columns))
    if streamer is not None:
        streamer.end()
    return _joined(input_ids, columns)


def _chosen_in_python(
    rows: GivenRows,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    config: GenerationConfig,
    streamer: BaseStreamer | None,
) -> Output:
    """Return prompts with tokens that processors and torch's generator choose after them.

    It is transformers' loop, with the logits of the kernel.
    """
    pads, pad_token = _pads(stopping_criteria), _pad_token(vars(config))
    is_dict = bool(config.return_dict_in_generate)
    scores: tuple[torch.Tensor, ...] | None = () if is_dict and config.output_scores else None
    raw: tuple[torch.Tensor, ...] | None = () if is_dict and config.output_logits else None
    unfinished = torch.ones(len(input_ids), dtype=torch.long, device=input_ids.device)
    with rows:
        while True:
            logits = torch.from_numpy(rows.logits()).to(input_ids.device, copy=True)
            processed = logits_processor(input_ids, logits)
            if scores is not None:
                scores += (processed,)
            if raw is not None:
                raw += (logits,)
            if config.do_sample:
                probabilities = torch.nn.functional.softmax(processed, dim=-1)
                tokens = torch.multinomial(probabilities, num_samples=1).squeeze(1)
            else:
                tokens = torch.argmax(processed, dim=-1)
            if pads:
                tokens = tokens * unfinished + pad_token * (1 - unfinished)
            input_ids = torch.cat([input_ids, tokens[:, None]], dim=-1)
            unfinished = unfinished & ~stopping_criteria(input_ids, scores)
            if streamer is not None:
                streamer.put(tokens.cpu())
            if not unfinished.any():
                break
            if pads:
                for row in torch.nonzero(unfinished == 0).flatten().tolist():
                    rows.end(row)
            rows.extend(tokens.tolist())
    if streamer is not None:
        streamer.end()
    if not is_dict:
        return input_ids
    return GenerateDecoderOnlyOutput(sequences=input_ids, scores=scores, logits=raw)


def _check_positions(position_ids: torch.Tensor | None, starts: list[int], length: int) -> None:
    """Raise an error unless the positions are those of tokens that follow one another."""
    if position_ids is None:
        return
    places = torch.arange(length, device=position_ids.device)
    begins = torch.tensor(starts, device=position_ids.device)[:, None]
    if not torch.equal((places - begins).clamp(min=0), position_ids.expand(len(starts), -1)):
        raise RefusedSettingError(
            "position_ids= is refused: in the kernel the tokens of a row have the positions from 0 "
            "on, without gaps; leave it out",
            "position_ids",
        )


def _is_around(held: Any, model: PreTrainedModel) -> bool:
    """Return whether what a caller holds is a model, or what torch.compile or peft made of it."""
    held = getattr(held, "_orig_mod", held)
    inner = getattr(held, "get_base_model", None)
    return held is model or (inner is not None and inner() is model)


def _stop_strings(
    strings: Any, tokenizer: Any, criteria: Sequence[StoppingCriteria]
) -> list[StoppingCriteria]:
    """Return the criterion of stop strings, none if the caller has given his own."""
    if tokenizer is None:
        raise ValueError("stop_strings need the tokenizer of the model; give tokenizer=")
    if any(_is(each, StopStringCriteria) for each in criteria):
        return []
    return [StopStringCriteria(tokenizer, strings)]


def _is(criterion: StoppingCriteria, *classes: type) -> bool:
    """Return whether a criterion is of a class that the kernel knows, and of no subclass."""
    return type(criterion) in classes


def _pads(criteria: Sequence[StoppingCriteria]) -> bool:
    """Return whether rows that have ended are padded; else transformers lets them go on."""
    return any(hasattr(each, "eos_token_id") for each in criteria)


def _end_tokens(criteria: Sequence[StoppingCriteria]) -> list[int]:
    """Return the tokens that end a row, by criteria that the kernel knows."""
    found = [each.eos_token_id for each in criteria if _is(each, EosTokenCriteria)]
    return [token for tokens in found for token in tokens.flatten().tolist()]


def _pad_token(settings: Mapping[str, Any], ends: Sequence[int] = ()) -> int:
    """Return what fills a row behind its end: of settings, or the first end token, or 0."""
    for given in (settings.get("pad_token_id"), settings.get("eos_token_id"), ends):
        tokens = torch.as_tensor([] if given is None else given).flatten()
        if len(tokens):
            return int(tokens[0])
    return 0


def _seeds(count: int, samples: bool) -> list[int]:
    """Return a seed for each row, drawn from torch's generator where tokens are."""
    return torch.randint(2**63 - 1, (count,)).tolist() if samples else [0] * count


def _joined(input_ids: torch.Tensor, columns: list[list[int]]) -> torch.Tensor:
    new = torch.tensor(columns, dtype=input_ids.dtype, device=input_ids.device).T
    return torch.cat([input_ids, new.reshape(len(input_ids), -1)], dim=-1)
