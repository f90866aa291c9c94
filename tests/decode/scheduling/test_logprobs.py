"""How likely the tokens of an answer were, beside what the logits say."""

import math

import numpy as np
import pytest
import torch

import tensor_ops_decode
from tensor_ops_decode.scheduling.logits import token_logprob

SETTINGS = {"max_new_tokens": 8, "ignore_eos": True}


@pytest.fixture
def model(folder, backend):
    with tensor_ops_decode.load(folder, backend, max_num_batched_requests=2) as model:
        yield model


def test_logprobs_are_those_of_the_logits(model):
    kernel = model.kernel
    request = kernel.add_request([1, 2, 3], logprobs=4, temperature=3.0, seed=5, top_k=9)
    right = []
    for _ in range(6):
        token = kernel()[request]
        logits = torch.from_numpy(kernel.logits(request)).double().log_softmax(0)
        values, tokens = logits.topk(4)
        right.append((logits[token].item(), tokens.tolist(), values.tolist()))
    found = kernel.logprobs(request)
    assert len(found) == 6
    for each, (logprob, tokens, values) in zip(found, right, strict=True):
        assert each.logprob == pytest.approx(logprob, abs=1e-12)
        assert [token for token, _ in each.likeliest] == tokens
        np.testing.assert_allclose([value for _, value in each.likeliest], values, atol=1e-12)


def test_they_are_the_models_own_whatever_the_settings(model):
    (plain,) = model.generate("Once", logprobs=3, **SETTINGS)
    assert all(each.logprob == each.likeliest[0][1] for each in plain.logprobs)
    assert [each.likeliest[0][0] for each in plain.logprobs] == list(plain.tokens)
    bans = {plain.tokens[0]: -math.inf}
    settings = {"logit_bias": bans, "repetition_penalty": 1.3, "temperature": 0.5, "top_k": 3}
    (other,) = model.generate("Once", logprobs=3, **SETTINGS, **settings)
    assert other.logprobs[0].likeliest == plain.logprobs[0].likeliest
    assert other.logprobs[0].logprob < plain.logprobs[0].logprob


def test_every_token_has_one_and_without_asking_there_are_none(model):
    prompts = ["Once", "a", "xyz"]
    answers = model.generate(prompts, logprobs=0, **SETTINGS)
    assert [len(answer.logprobs) for answer in answers] == [8, 8, 8]
    assert all(each.likeliest == () for answer in answers for each in answer.logprobs)
    alone = [model.generate(prompt, logprobs=0, **SETTINGS)[0] for prompt in prompts]
    assert answers == alone
    assert model.generate("Once", **SETTINGS)[0].logprobs is None
    (stopped,) = model.generate("Once", logprobs=0, stop=answers[0].text[1:3], **SETTINGS)
    assert len(stopped.logprobs) == len(stopped.tokens) < 8


def test_a_request_without_logprobs_says_so(model):
    request = model.kernel.add_request([1])
    with pytest.raises(ValueError, match=rf"request {request} has none: give logprobs="):
        model.kernel.logprobs(request)


@pytest.mark.parametrize("bad", [-1, True, 1.5])
def test_a_wrong_number_is_an_error(model, bad):
    with pytest.raises(ValueError, match="logprobs must be an integer, 0 or larger"):
        model.generate("Once", logprobs=bad)


def test_of_equals_the_lowest_tokens_are_the_likeliest():
    found = token_logprob(np.zeros(5, np.float32), 3, 2)
    assert found.logprob == pytest.approx(-math.log(5))
    assert [token for token, _ in found.likeliest] == [0, 1]
    assert len(token_logprob(np.zeros(5, np.float32), 3, 9).likeliest) == 5
