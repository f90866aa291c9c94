"""Requests of models that keep a state, which belongs to a slot: the bits of each are its own."""

import dataclasses

import numpy as np
import pytest
import torch

from changing_requests import answer, answers, assert_alone_the_same
from greedy_models import open_kernel
from running_shards import Shards
from small_families import small_model
from tensor_ops_decode import LogitsError, State, open_weights, reference
from tensor_ops_decode.executors.memory_plan import cache_bytes
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.scheduling.requests import Requests

FAMILIES = ("LFM2", "LFM2 MoE", "Qwen 3.5", "Qwen 3.5 MoE", "Granite 4")
SLOTS, WORDS = 3, 331


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda name: name.replace(" ", "-"))
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    small_model(request.param).save_pretrained(made)
    return made


@pytest.fixture
def kernel(folder, backend):
    options = {"backend": backend, "max_num_batched_tokens": 9}
    with open_kernel(folder, **options, num_speculative_tokens=2) as opened:
        opened.compile()
        yield opened


@pytest.mark.sampled(2, "folder", "backend")
def test_requests_that_join_and_leave_have_the_bits_of_each_alone(kernel):
    draw = np.random.default_rng(5)
    requests = [
        (draw.integers(0, WORDS, draw.integers(1, 20)).tolist(), int(draw.integers(1, 12)))
        for _ in range(40)
    ]
    requests[10] = requests[3]  # begins as another one did
    found = answers(kernel, requests, SLOTS, draw)
    assert len(found) > 20
    assert_alone_the_same(kernel, requests, found)


def test_a_request_after_one_with_nan_begins_anew(backend, tmp_path):
    model = small_model("LFM2", tie_word_embeddings=False)
    model.model.embed_tokens.weight.data[7] = torch.nan
    model.save_pretrained(tmp_path)
    options = {"backend": backend, "max_num_batched_requests": 1}
    with open_kernel(tmp_path, **options) as kernel:
        kernel.compile()
        tokens, logits = answer(kernel, [5, 6, 8], 1)
        kernel.reset()
        kernel.add_request([5, 7, 6], ignore_eos=True)
        with pytest.raises(LogitsError, match=r"after 3 tokens of the prompt .* NaN"):
            kernel()
        request = kernel.add_request([5, 6, 8], ignore_eos=True)
        kernel()
        assert kernel.tokens(request)[:1] == tokens
        assert np.array_equal(kernel.logits(request), logits)


@pytest.mark.parametrize("when", ["_chosen", "_end"])
def test_an_interrupted_step_is_not_taken_twice(kernel, monkeypatch, when):
    """The request begins anew, since the step has changed its state."""
    prompt, count = [5, 6, 7, 8], 9
    tokens, right = answer(kernel, prompt, count)
    kernel.reset()
    request = kernel.add_request(prompt, ignore_eos=True)
    for _ in range(3):
        kernel()

    def interrupt(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Requests, when, interrupt)
        with pytest.raises(KeyboardInterrupt):
            kernel()
    while len(kernel.tokens(request)) < count:
        kernel()
    assert kernel.tokens(request)[:count] == tokens
    assert np.array_equal(kernel.logits(request), right)


def test_a_request_goes_on_from_its_state(kernel):
    prompt, more = [5, 6, 7, 8], [9, 10, 11]
    _, right = answer(kernel, prompt + more, 1)
    kernel.reset()
    request = kernel.add_request(prompt, choose=False)
    kernel()
    for token in more:
        kernel.extend(request, [token])
        kernel()
    assert np.array_equal(kernel.logits(request), right)


def test_states_take_the_memory_that_is_stated(kernel):
    caches = kernel.program.caches.values()
    states = [each for each in caches if isinstance(each, State)]
    assert states
    assert len(states) < len(caches)
    limits = kernel.program.limits
    memory = kernel.explain().memory
    for name, of in (("states", states), ("caches", [c for c in caches if c not in states])):
        expected = sum(cache_bytes(limits, each) for each in of)
        # Each of them begins at a line of the processor's cache.
        assert expected <= memory[name] <= expected + 64 * limits.num_states * len(caches)


def test_ranks_say_what_one_says(kernel, folder):
    """Each of them has the states of all layers, which are not divided."""
    prompt, count = [5, 6, 7, 8], 12
    tokens, _ = answer(kernel, prompt, count)
    arrays = TensorArrays(kernel.program, {}, open_weights(folder))
    attached = {
        name: dataclasses.replace(tensor, source={"attached": True})
        for name, tensor in kernel.program.tensors.items()
        if "file" in tensor.source
    }
    program = dataclasses.replace(kernel.program, tensors={**kernel.program.tensors, **attached})
    shards = Shards(reference, program, {name: arrays[name] for name in attached}, 2)
    try:
        found, _ = shards.greedy(prompt, count)
    finally:
        shards.close()
    assert found == tokens
