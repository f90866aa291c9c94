"""Calls are prepared as a model would, by its class and without its weights."""

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
)

from tensor_ops_torch.decoding.preparation import preparing_model

CONFIGS = [
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    Phi3Config,
    GemmaConfig,
    Gemma2Config,
    Gemma3TextConfig,
]


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_family_prepares_a_call(kind):
    seen = {}

    def loop(model, input_ids, **prepared):
        seen.update(prepared)
        return input_ids

    defaults = GenerationConfig(eos_token_id=[7, 8], no_repeat_ngram_size=2, max_length=9)
    made = preparing_model(kind(pad_token_id=0), defaults, torch.device("cpu"), None)
    prompts = torch.tensor([[0, 5], [6, 7]])
    mask = torch.tensor([[0, 1], [1, 1]])
    assert torch.equal(made.generate(prompts, attention_mask=mask, custom_generate=loop), prompts)
    assert torch.equal(seen["attention_mask"], mask)
    assert seen["position_ids"].tolist() == [[0, 0], [0, 1]]
    assert seen["stopping_criteria"].max_length == 9
    assert [type(each).__name__ for each in seen["logits_processor"]] == [
        "NoRepeatNGramLogitsProcessor"
    ]
    with pytest.raises(ValueError, match=r"not used by the model: \['max_new_token'\]"):
        made.generate(prompts, max_new_token=3, custom_generate=loop)


def test_prompts_are_made_on_the_device_and_the_model_itself_can_be_called():
    def loop(model, input_ids, **prepared):
        return model(input_ids, of="a processor")

    def model(*args, **kwargs):
        return args, kwargs

    made = preparing_model(
        LlamaConfig(), GenerationConfig(bos_token_id=3), torch.device("cpu"), model
    )
    assert made.device == torch.device("cpu")
    assert not [*made.modules()][1:]
    (tokens,), named = made.generate(max_new_tokens=1, custom_generate=loop)
    assert (tokens.tolist(), named) == ([[3]], {"of": "a processor"})
