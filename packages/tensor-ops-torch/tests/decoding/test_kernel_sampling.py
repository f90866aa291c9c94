"""The distribution that the kernel draws from, which transformers' classes leave."""

import math

import pytest
import torch
from small_decoders import PROMPTS
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tensor_ops_decode.nodes.sample import philox
from tensor_ops_torch.decoding.kernel_sampling import sampling_settings

SETTINGS = [
    {"top_k": 0},
    {},
    {"temperature": 0.6, "top_k": 0},
    {"temperature": 1.7, "top_k": 9},
    {"top_p": 0.8, "top_k": 0},
    {"min_p": 0.05, "top_k": 0},
    {"temperature": 1.4, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.4},
]
WARPERS = {
    "repetition_penalty": RepetitionPenaltyLogitsProcessor,
    "temperature": TemperatureLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
}


def probabilities(model, tokens, length, settings):
    """Return transformers' own distribution of each token behind a prompt, as it was drawn."""
    asked = {"top_k": 50} | settings  # which transformers takes without being told
    processors = LogitsProcessorList(
        WARPERS[name](asked[name]) for name in WARPERS if asked.get(name)
    )
    with torch.no_grad():
        logits = model(tokens[None]).logits[0].float()
    for place in range(length, len(tokens)):
        scores = processors(tokens[None, :place], logits[place - 1][None].clone())
        yield scores[0].double().softmax(-1), logits[place - 1]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_random_number_stands_for_the_token_of_transformers_distribution(
    decoder, model, settings
):
    count = 20
    torch.manual_seed(11)
    how = {"do_sample": True, "max_new_tokens": count, "eos_token_id": None}
    tokens = decoder.generate(PROMPTS, **how, **settings)
    assert not decoder.kernel.chose_in_python()
    torch.manual_seed(11)
    seeds = torch.randint(2**63 - 1, (len(PROMPTS),)).tolist()
    num_compared = 0
    for row, (prompt, seed) in enumerate(zip(PROMPTS, seeds, strict=True)):
        own = tokens[row, tokens.shape[1] - count - len(prompt) :]
        for place, (p, _) in enumerate(probabilities(model, own, len(prompt), settings)):
            # A token is drawn where the sum of those that are as likely or likelier passes u.
            u = philox(seed, len(prompt) - 1 + place) * 2.0**-32
            order = p.argsort(descending=True, stable=True)
            sums = p[order].cumsum(0)
            index = int(torch.searchsorted(sums, torch.tensor(u, dtype=torch.float64), right=True))
            if (sums - u).abs().min() > 1e-4:  # else rounding decides
                assert own[len(prompt) + place] == order[index]
                num_compared += 1
    assert num_compared > 0.8 * count * len(PROMPTS)


def test_settings_of_the_kernel_are_read_from_the_processors():
    made = [
        RepetitionPenaltyLogitsProcessor(1.5),
        TemperatureLogitsWarper(0.5),
        TopKLogitsWarper(7),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.1),
    ]
    every = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.1}
    every["repetition_penalty"] = 1.5
    assert sampling_settings(made, True, [0, 0]) == every
    assert sampling_settings(made[:1], False, [0]) == {"repetition_penalty": 1.5}
    assert sampling_settings([], False, [0]) == {}
    assert sampling_settings([], True, [0]) == {"temperature": 1.0}
    padded = RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=torch.tensor([2, 0]))
    assert sampling_settings([padded], False, [2, 0]) == {"repetition_penalty": 1.5}


class Own(TopKLogitsWarper):
    """Someone's own."""


@pytest.mark.parametrize(
    "processors",
    [
        [Own(5)],
        [TopPLogitsWarper(0.9), TopKLogitsWarper(7)],  # in another order
        [TopKLogitsWarper(7), TopKLogitsWarper(5)],
        [TopKLogitsWarper(7, filter_value=-10.0)],
        [TopPLogitsWarper(0.9, min_tokens_to_keep=2)],
        [TopPLogitsWarper(0.0)],
        [MinPLogitsWarper(0.1, filter_value=-10.0)],
        [TemperatureLogitsWarper(1e7)],
        [SuppressTokensLogitsProcessor([1])],
        [RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=3)],
        [RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=torch.tensor([1, 1]))],
    ],
)
def test_what_the_kernel_does_otherwise_is_left_to_python(processors):
    assert sampling_settings(processors, True, [0, 2]) is None


def test_what_is_about_draws_is_left_to_python_where_nothing_is_drawn():
    assert sampling_settings([TopKLogitsWarper(7)], False, [0]) is None


def test_tokens_that_are_not_padding_are_penalized_though_it_is_not_masked():
    assert sampling_settings([RepetitionPenaltyLogitsProcessor(2.0)], False, [1]) is None


def test_the_largest_number_of_kept_tokens_is_that_of_the_kernel():
    assert sampling_settings([TopKLogitsWarper(2**31)], True, [0]) is None
    assert math.isclose(
        sampling_settings([TopKLogitsWarper(2**31 - 1)], True, [0])["top_k"], 2e9, rel_tol=0.1
    )
