"""Llama models against transformers: the same greedy tokens, in float32, on every executor."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tensor_ops_decode

# Logits of two implementations in float32 differ by less. Seeds are chosen so that the two largest
# logits of every step are further apart.
BOUND = 2e-4
NEW_TOKENS = 64
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
        "hidden_size": 48,
        "intermediate_size": 100,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 331,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
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


@torch.no_grad()
def expected(llama, prompt):
    """Return the greedy continuation of transformers, and the logits of its last step."""
    ids = llama.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    logits = llama(ids[:, :-1]).logits[0, len(prompt) - 1 :]
    best = logits.topk(2).values
    margin = (best[:, 0] - best[:, 1]).min().item()
    assert margin > BOUND, f"choose another seed: two logits are {margin} apart"
    return ids[0, len(prompt) :].tolist(), logits[-1].numpy()


def greedy(kernel, prompts):
    """Return what a kernel writes after prompts, all at once, and its last logits."""
    requests = [kernel.add_request(prompt, ignore_eos=True) for prompt in prompts]
    found = {request: [] for request in requests}
    logits = {}
    while len(logits) < len(requests):
        for request, token in kernel().items():
            found[request].append(token)
            if len(found[request]) == NEW_TOKENS:
                logits[request] = np.array(kernel.logits(request))
                kernel.remove(request)
    return [(found[request], logits[request]) for request in requests]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_greedy_tokens_are_those_of_transformers(model, backend, num_workers):
    folder, prompts, right = model
    with tensor_ops_decode.PersistentKernel(
        mode="decode",
        backend=backend,
        model=folder,
        num_workers=num_workers,
        max_num_batched_requests=3,
        max_num_batched_tokens=8,
        max_seq_length=128,
        page_size=4,
        cache_dtype="float32",
    ) as kernel:
        kernel.compile()
        found = greedy(kernel, prompts[:3]) + greedy(kernel, prompts[3:])
    for (tokens, logits), (right_tokens, right_logits) in zip(found, right, strict=True):
        assert tokens == right_tokens
        assert np.abs(logits - right_logits).max() < BOUND
