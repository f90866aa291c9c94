"""Answers of a small model of random weights, by transformers and by a kernel."""

import numpy as np
import torch

import tensor_ops_decode

# Logits of two implementations in float32 differ by less. Seeds are chosen so that the two largest
# logits of every step are further apart.
BOUND = 2e-4
# With activations in two int8 terms benchmarks/decode_accuracy.py finds one logit off by 0.019, and
# two may be off in opposite directions.
INT8X2_TIE = 5e-2
NEW_TOKENS = 40
# The configuration of models that are small, with what models differ in left out.
SMALL_MODEL = {
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 331,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
# So small that requests share steps, and take several for a prompt and many pages.
SMALL = {
    "max_num_batched_requests": 3,
    "max_num_batched_tokens": 8,
    "max_seq_length": 128,
    "page_size": 4,
}


@torch.no_grad()
def expected(model, prompt, num_tokens=NEW_TOKENS):
    """Return the greedy continuation of transformers, and the logits of its last step."""
    if "linear_attention" in (getattr(model.config, "layer_types", None) or ()):
        return token_by_token(model, prompt, num_tokens)
    ids = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    logits = model(ids[:, :-1]).logits[0, len(prompt) - 1 :]
    best = logits.topk(2).values
    margin = (best[:, 0] - best[:, 1]).min().item()
    assert margin > BOUND, f"choose another seed: two logits are {margin} apart"
    return ids[0, len(prompt) :].tolist(), logits[-1].numpy()


def token_by_token(model, prompt, num_tokens):
    """Return the same of a model whose pieces of a prompt are computed by another formula."""
    tokens, cache, found = list(prompt), None, []
    while len(found) < num_tokens:
        at = len(tokens) - 1 if cache is not None else 0
        for position in range(at, len(tokens)):
            ids = torch.tensor([tokens[position : position + 1]])
            given = model(ids, cache=cache, use_cache=True)
            cache = given.past_key_values
        logits = given.logits[0, -1]
        best = logits.topk(2).values
        assert best[0] - best[1] > BOUND, "choose another seed: two logits are as good as equal"
        found.append(int(logits.argmax()))
        tokens.append(found[-1])
    return found, logits.numpy()


def open_kernel(model, **options):
    """Return a small kernel for a file or a folder."""
    return tensor_ops_decode.PersistentKernel(
        mode="decode",
        model=model,
        **(SMALL | options),
    )


def greedy(kernel, prompts, num_tokens=NEW_TOKENS):
    """Return what a kernel writes after prompts, all at once, and its last logits."""
    requests = [kernel.add_request(prompt, ignore_eos=True) for prompt in prompts]
    found = {request: [] for request in requests}
    logits = {}
    while len(logits) < len(requests):
        for request, token in kernel().items():
            found[request].append(token)
            if len(found[request]) == num_tokens:
                logits[request] = np.array(kernel.logits(request))
                kernel.remove(request)
    return [(found[request], logits[request]) for request in requests]


def assert_same(found, right):
    """Assert that tokens are equal and logits within the bound."""
    for (tokens, logits), (right_tokens, right_logits) in zip(found, right, strict=True):
        assert tokens == right_tokens
        assert np.abs(logits - right_logits).max() < BOUND
