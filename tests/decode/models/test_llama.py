"""Llama models against transformers: the same greedy tokens, in float32, on every executor."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from greedy_models import SMALL_MODEL, assert_same, expected, greedy, open_kernel
from small_families import LLAMAS

PROMPT_LENGTHS = (1, 2, 5, 11, 17)


@pytest.fixture(scope="module", params=LLAMAS, ids=lambda name: name.replace(" ", "-"))
def model(request, tmp_path_factory):
    """A small model of random weights, its folder, and prompts."""
    settings = {
        **SMALL_MODEL,
        **LLAMAS[request.param],
    }
    torch.manual_seed(list(LLAMAS).index(request.param))
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
@pytest.mark.sampled(2, "model", "backend", "num_workers")
def test_greedy_tokens_are_those_of_transformers(model, backend, num_workers):
    folder, prompts, right = model
    with open_kernel(
        folder, backend=backend, num_workers=num_workers, cache_dtype="float32"
    ) as kernel:
        kernel.compile()
        found = greedy(kernel, prompts[:3]) + greedy(kernel, prompts[3:])
    assert_same(found, right)
