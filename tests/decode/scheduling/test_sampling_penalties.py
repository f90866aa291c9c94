"""How an answer's tokens are chosen: penalties and biases, against transformers."""

import functools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import tensor_ops_decode

PROMPTS = ["Once upon a time", "1234512345123451234512345", "a"]
BIASES = {101: 2.5, 32: -3.0, 110: -math.inf}
CASES = {
    "penalty": {"repetition_penalty": 1.3},
    "reward": {"repetition_penalty": 0.8},
    "bias": {"logit_bias": BIASES},
    "both": {"repetition_penalty": 1.1, "logit_bias": BIASES},
}
SETTINGS = {"max_new_tokens": 16, "ignore_eos": True}


@pytest.fixture
def model(folder, backend):
    options = {"max_num_batched_requests": 2, "max_num_batched_tokens": 8, "page_size": 8}
    with tensor_ops_decode.load(folder, backend, **options) as model:
        yield model


@functools.cache
def of_transformers(folder, prompt, case):
    settings = CASES[case]
    biases = settings.get("logit_bias", {})
    ids = LlamaForCausalLM.from_pretrained(folder).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=SETTINGS["max_new_tokens"],
        do_sample=False,
        repetition_penalty=settings.get("repetition_penalty"),
        sequence_bias={(token,): bias for token, bias in biases.items()} or None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_are_those_of_transformers(model, folder, case):
    plain = model.generate(PROMPTS, **SETTINGS)
    answers = model.generate(PROMPTS, **SETTINGS, **CASES[case])
    assert answers != plain
    for answer in answers[:2]:
        assert list(answer.tokens) == of_transformers(folder, answer.prompt_tokens, case)


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_alone_and_beside_others_is_answered_alike(model, case):
    settings = {**SETTINGS, **CASES[case], "temperature": 1.5, "top_p": 0.9}
    together = model.generate(PROMPTS, seed=3, **settings)
    for number, prompt in enumerate(PROMPTS):
        assert model.generate(prompt, seed=3 + number, **settings) == [together[number]]


SUBTRACTED = {
    "presence": {"presence_penalty": 0.7},
    "frequency": {"frequency_penalty": 0.3},
    "reward": {"presence_penalty": -0.4, "frequency_penalty": -0.1},
    "all": {
        "presence_penalty": 0.4,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.2,
        "logit_bias": BIASES,
    },
}


@pytest.mark.sampled(2, "case", "last")
@pytest.mark.parametrize("last", [None, 1, 7])
@pytest.mark.parametrize("case", SUBTRACTED)
def test_greedy_tokens_are_those_of_the_definition(model, case, last):
    settings = SUBTRACTED[case]
    prompts = [model.tokenizer.encode(prompt) for prompt in PROMPTS]
    expected = [by_definition(model.kernel, prompt, last, settings) for prompt in prompts]
    answers = model.generate(prompts, **SETTINGS, **settings, penalty_last_n=last)
    assert [list(answer.tokens) for answer in answers] == expected
    assert last == 1 or answers != model.generate(prompts, **SETTINGS)


def by_definition(kernel, prompt, last, settings):
    """Return the tokens by the logits of the model, changed in float64."""
    request = kernel.add_request(prompt, max_new_tokens=16, ignore_eos=True, choose=False)
    tokens = list(prompt)
    while kernel.finish_reason(request) is None:
        kernel.run(100)  # until it waits for a token
        logits = kernel.logits(request).astype(np.float64)
        for token, bias in settings.get("logit_bias", {}).items():
            logits[token] += bias
        counts = Counter(tokens[-last:] if last else tokens)
        for token, count in counts.items():
            logits[token] -= settings.get("presence_penalty", 0)
            logits[token] -= settings.get("frequency_penalty", 0) * count
            penalty = settings.get("repetition_penalty", 1)
            logits[token] *= 1 / penalty if logits[token] > 0 else penalty
        tokens.append(int(logits.argmax()))
        kernel.extend(request, tokens[-1:])
    kernel.remove(request)
    return tokens[len(prompt) :]


def test_the_next_request_of_a_slot_has_none_of_the_last_ones_edits(model):
    plain = model.generate(PROMPTS, **SETTINGS)
    model.generate(PROMPTS, **SETTINGS, **CASES["both"])
    assert model.generate(PROMPTS, **SETTINGS) == plain


def test_a_banned_token_is_never_chosen(model):
    (plain,) = model.generate("a", **SETTINGS)
    bans = dict.fromkeys(plain.tokens, -math.inf)
    for temperature in (0, 3.0):
        (answer,) = model.generate("a", **SETTINGS, temperature=temperature, logit_bias=bans)
        assert not set(answer.tokens) & set(bans)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"repetition_penalty": 0}, ValueError, "repetition_penalty must be a number larger than"),
        ({"repetition_penalty": 1e-50}, ValueError, "repetition_penalty"),
        ({"repetition_penalty": math.inf}, ValueError, "repetition_penalty"),
        ({"presence_penalty": math.nan}, ValueError, "presence_penalty must be a number that is"),
        ({"frequency_penalty": 1e39}, ValueError, "frequency_penalty must be a number that is fin"),
        ({"penalty_last_n": 0}, ValueError, "penalty_last_n must be a positive integer, got 0"),
        ({"logit_bias": [1]}, TypeError, r"logit_bias must map tokens to numbers, got \[1\]"),
        ({"logit_bias": {1: math.inf}}, ValueError, "logit_bias of token 1 must be .* got inf"),
        ({"logit_bias": {1: math.nan}}, ValueError, "logit_bias of token 1"),
        ({"logit_bias": {1: "2"}}, ValueError, "logit_bias of token 1"),
        ({"logit_bias": {-1: 2}}, ValueError, "a token of logit_bias must be an integer, 0"),
        ({"logit_bias": {"a": 2}}, ValueError, "a token of logit_bias"),
        ({"logit_bias": {260: 1.0}}, ValueError, "tokens of logit_bias .* to 259, got 260"),
        ({"logit_bias": dict.fromkeys(range(1025), 1)}, ValueError, "may have 1024 tokens, got 1"),
        (
            {"logit_bias": dict.fromkeys(range(260), -math.inf)},
            ValueError,
            "bans all of the 260 tokens",
        ),
    ],
)
def test_settings_that_cannot_be_are_errors(model, settings, error, words):
    with pytest.raises(error, match=words):
        model.generate(["fine", "x"], **settings)


def test_a_program_that_takes_the_largest_logit_has_no_edits(backend):
    with tensor_ops_decode.PersistentKernel(backend=backend) as kernel:
        kernel.compile()
        for settings in ({"repetition_penalty": 1.1}, {"logit_bias": {1: 1.0}}):
            with pytest.raises(ValueError, match=r"by argmax; .*without penalties"):
                kernel.add_request([1], **settings)
