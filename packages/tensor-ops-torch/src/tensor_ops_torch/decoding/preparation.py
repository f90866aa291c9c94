"""An object that prepares a call of `generate` as a model does, without the model's weights."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

__all__ = ["preparing_model"]


def preparing_model(
    config: PretrainedConfig,
    generation_config: GenerationConfig,
    device: torch.device,
    model: PreTrainedModel | None,
) -> PreTrainedModel:
    """Return an object that has the methods of a model's class, and none of its modules.

    transformers' ``generate`` merges settings, checks arguments and makes processors by them. It
    makes a prompt on `device` where a call has none. `model` runs where a processor calls it, as
    that of ``guidance_scale`` does.

    Examples
    --------
    >>> from transformers import GenerationConfig, LlamaConfig
    >>> made = preparing_model(LlamaConfig(), GenerationConfig(), "cpu", None)
    >>> type(made).__name__, sum(1 for _ in made.parameters())
    ('LlamaForCausalLM', 0)
    """
    kind: Any = _class_without_modules(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])
    made = kind.__new__(kind)
    torch.nn.Module.__init__(made)
    made.config, made.generation_config = config, generation_config
    # Not as attributes of a module, which would take the model for one of its own modules.
    vars(made).update(device_of_prompts=device, model_itself=model)
    return made


@functools.cache
def _class_without_modules(kind: type[PreTrainedModel]) -> type[PreTrainedModel]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.model_itself(*args, **kwargs)

    device = property(lambda self: self.device_of_prompts)
    return type(kind.__name__, (kind,), {"__call__": call, "device": device})
