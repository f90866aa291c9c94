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


TOKENS = [*b"Two boys sat on the wall and counted", 3]


def test_logprobs_of_a_prompt_are_those_of_its_logits(model):
    kernel, right = model.kernel, []
    request = kernel.add_request(TOKENS[:1], choose=False)
    for token in TOKENS[1:]:
        kernel()
        right.append(torch.from_numpy(kernel.logits(request)).double().log_softmax(0)[token].item())
        kernel.extend(request, [token])
    found = kernel.prompt_logprobs(TOKENS)
    np.testing.assert_allclose(found, right, rtol=1e-5)
    assert kernel.prompt_logprobs(TOKENS, first=9) == pytest.approx(found[8:], rel=1e-5)
    assert model.logprobs(bytes(TOKENS[:-1]).decode()) == found[:-1]
    assert kernel.prompt_logprobs([4]) == kernel.prompt_logprobs(TOKENS, first=99) == []


def test_requests_go_on_around_a_prompt_that_is_scored(model):
    def answer(*, is_disturbed):
        kernel = model.kernel
        request = kernel.add_request(
            TOKENS[:5], ignore_eos=True, temperature=0.9, repetition_penalty=1.2
        )
        for _ in range(6):
            kernel()
            if is_disturbed:
                kernel.prompt_logprobs(TOKENS)
                with pytest.raises(ValueError, match="has got no token in the last step"):
                    kernel.logits(request)
        tokens = kernel.tokens(request)
        kernel.remove(request)
        return tokens

    assert answer(is_disturbed=True) == answer(is_disturbed=False)


def test_prompts_that_cannot_be_scored_are_named(model):
    kernel = model.kernel
    for tokens, words in (
        ([], "is empty"),
        ([260], "from 0 to 259"),
        ([1] * 500, "leave room for"),
    ):
        with pytest.raises(ValueError, match=words):
            kernel.prompt_logprobs(tokens)
    with pytest.raises(ValueError, match="first must be"):
        kernel.prompt_logprobs([1, 2], first=-1)
    requests = [kernel.add_request([1]) for _ in range(2)]
    with pytest.raises(ValueError, match="2 requests are active"):
        kernel.prompt_logprobs([1, 2])
    kernel.remove(requests[0])
    assert len(kernel.prompt_logprobs([1, 2])) == 1


def test_pages_of_a_scored_prompt_are_free_again(folder, backend):
    pages = {"max_num_pages": 4, "page_size": 4, "max_seq_length": 16}
    with tensor_ops_decode.load(folder, backend, max_num_batched_requests=2, **pages) as model:
        for _ in range(3):
            assert len(model.kernel.prompt_logprobs(TOKENS[:16])) == 15
        request = model.kernel.add_request(TOKENS[:5], ignore_eos=True)
        model.kernel()
        with pytest.raises(ValueError, match="needs 4 pages, and 2 are free"):
            model.kernel.prompt_logprobs(TOKENS[:16])
        assert len(model.kernel.tokens(request)) == 1
