"""Requests of models with latent attention: the bits of each are those of the request alone."""

import numpy as np
import pytest

from changing_requests import answers, assert_alone_the_same
from greedy_models import open_kernel
from small_families import small_model

SLOTS, WORDS, LONGEST = 3, 331, 400
SIZES = {"max_position_embeddings": 512, "kv_lora_rank": 40}


@pytest.fixture(scope="module", params=["DeepSeek V3", "GLM 4.7 Flash"])
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    heads = {"num_attention_heads": 20, "num_key_value_heads": 20, "hidden_size": 60}
    changed = SIZES | heads if request.param == "GLM 4.7 Flash" else SIZES
    small_model(request.param, **changed).save_pretrained(made)
    return made


def opened(folder, backend, **options):
    if backend == "cpp":
        options["num_workers"] = options.pop("workers")
    else:
        del options["workers"]
    limits = {"max_num_batched_requests": SLOTS, "max_seq_length": LONGEST}
    kernel = open_kernel(folder, backend=backend, **(limits | options))
    kernel.compile()
    return kernel


def some_prompts(draw, count):
    """Return prompts of which many begin alike; some are longer than a range of positions."""
    beginnings = [draw.integers(0, WORDS, n).tolist() for n in (9, 22, 130)]
    return [
        beginnings[draw.integers(len(beginnings))]
        + draw.integers(0, WORDS, draw.integers(1, 20)).tolist()
        for _ in range(count)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.sampled(3, "folder", "backend", "dtype")
def test_requests_that_join_and_leave_have_the_bits_of_each_alone(folder, backend, dtype):
    draw = np.random.default_rng(5)
    count = 24 if backend == "cpp" else 6
    requests = [(prompt, int(draw.integers(1, 9))) for prompt in some_prompts(draw, count)]
    options = {"cache_dtype": dtype, "page_size": 4}
    many = {"num_speculative_tokens": 2, "max_num_batched_tokens": 40, "workers": 3}
    with opened(folder, backend, **options, **many) as kernel:
        found = answers(kernel, requests, SLOTS, draw, leaving=0.02)
    assert len(found) > count // 2
    few = {"max_num_batched_tokens": 7, "workers": 1, "page_size": 16}
    with opened(folder, backend, **(options | few)) as kernel:
        assert_alone_the_same(kernel, requests, found)
