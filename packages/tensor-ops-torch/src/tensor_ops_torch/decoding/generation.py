"""`generate` as transformers has it, with the steps of a kernel.

transformers prepares a call: it merges settings, makes logits processors and stopping criteria,
and checks lengths. The loop over tokens, which it lets others replace, is `token_loop`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    PretrainedConfig,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.generation import BaseStreamer

from tensor_ops import BackendFallbackWarning
from tensor_ops.extension import warn_caller
from tensor_ops_torch.decoding.generation_settings import (
    RefusedSettingError,
    asked_settings,
    refusal,
)
from tensor_ops_torch.decoding.preparation import preparing_model
from tensor_ops_torch.decoding.prompts import as_batch, pad_token_of, padding_of_prompts
from tensor_ops_torch.decoding.token_loop import Output, continue_prompts

if TYPE_CHECKING:
    from tensor_ops_decode import PersistentKernel

__all__ = ["GeneratingModel", "decode", "generate"]


class GeneratingModel(Protocol):
    """The attributes of a `Decoder` that `generate` needs."""

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
    """Continue prompts, as `Decoder.generate` says.

    `generation_settings.SETTINGS` and `ARGUMENTS` say what becomes of each setting.
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
            inputs,
            kwargs.get("attention_mask"),
            pad_token_of(asked),
            decoder.device,
            padding_of_prompts(asked),
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
        own = {
            "synced_gpus": synced_gpus,
            "assistant_model": assistant_model,
            "custom_generate": custom_generate,
            "tokenizer": tokenizer,
        }
        own = {name: value for name, value in own.items() if value is not None}
        return _generate_by_model(decoder, refused, generation_config, {**prepared, **own})
    if asked.get("stop_strings") is not None:
        # transformers passes no tokenizer on to a loop that is not its own.
        prepared["stopping_criteria"] += _stop_strings(
            asked["stop_strings"], tokenizer, prepared["stopping_criteria"]
        )
        generation_config = copy.deepcopy(generation_config)
        if generation_config is not None:
            generation_config.stop_strings = None
        if generation_config is None or decoder.generation_config.stop_strings is not None:
            prepared["stop_strings"] = None

    def loop(model: PreTrainedModel, input_ids: torch.Tensor, **more: Any) -> Output:
        return continue_prompts(kernel, input_ids, streamer=streamer, **more)

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
    such a loop: a streamer gets the prompt alone, and ``stop_strings`` raise. A streamer gets the
    tokens with ``custom_generate=functools.partial(decoder, streamer=streamer)``.

    Raises ValueError if the model is another one than the decoder's, and what `generate` raises.
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
        return continue_prompts(
            decoder.kernel,
            input_ids,
            logits_processor,
            stopping_criteria,
            generation_config,
            **model_kwargs,
        )


def _generate_by_model(
    decoder: GeneratingModel,
    refused: RefusedSettingError | None,
    generation_config: GenerationConfig | None,
    arguments: dict[str, Any],
) -> Output:
    """Return what the model's own ``generate`` does, with a warning if a kernel could not."""
    model = decoder.model
    if refused is not None and decoder.kernel is not None:
        message = f"{refused}; the model's own generate() runs instead"
        warn_caller(message, BackendFallbackWarning)
    if generation_config is None and decoder.generation_config != model.generation_config:
        generation_config = decoder.generation_config
    return model.generate(generation_config=generation_config, **arguments)


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
    if any(type(each) is StopStringCriteria for each in criteria):
        return []
    return [StopStringCriteria(tokenizer, strings)]
