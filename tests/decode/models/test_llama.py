"""Llama models against transformers: the same greedy tokens, in float32, on every executor."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from greedy_models import SMALL_MODEL, assert_same, expected, greedy, open_kernel

PROMPT_LENGTHS = (1, 2, 5, 11, 17)

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "grouped heads": {"num_attention_heads": 6, "num_key_value_heads": 3},
    "one key/value head": {"num_attention_heads": 5, "num_key_value_heads": 1, "hidden_size": 60},
    "as many key/value heads": {"num_attention_heads": 3, "num_key_value_heads": 3},
    "head size of its own": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 20},
    "own head": {"tie_word_embeddings": False},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "Llama 3's rotation": {"rope_parameters": LLAMA3},
    "rotation scaled": {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
    },
    "weights in float16": {"dtype": torch.float16},
    "weights in bfloat16": {"dtype": torch.bfloat16, "tie_word_embeddings": False},
}


@pytest.fixture(scope="module", params=MODELS, ids=lambda name: name.replace(" ", "-"))
def model(request, tmp_path_factory):
    """A small model of random weights, its folder, and prompts."""
    settings = {
        **SMALL_MODEL,
        **MODELS[request.param],
    }
    torch.manual_seed(list(MODELS).index(request.param))
    # Weights large enough that the model says something.
    stored = settings.pop("dtype", torch.float32)
    llama = LlamaForCausalLM(LlamaConfig(initializer_range=0.3, **settings)).eval().to(stored)
    folder = tmp_path_factory.mktemp("llama")
    llama.save_pretrained(folder)
    llama = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    draw = np.random.default_rng(7)
    prompts = [draw.integers(0, 331, length).tolist() for length in PROMPT_LENGTHS]
    return folder, prompts, [expected(llama, prompt) for prompt in prompts]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_greedy_tokens_are_those_of_transformers(model, backend, num_workers):
    folder, prompts, right = model
    with open_kernel(
        folder, backend=backend, num_workers=num_workers, cache_dtype="float32"
    ) as kernel:
        kernel.compile()
        found = greedy(kernel, prompts[:3]) + greedy(kernel, prompts[3:])
    assert_same(found, right)
