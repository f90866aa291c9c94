"""Requests with a constraint: their tokens are those of masked logits, all else is as without."""

import itertools

import numpy as np
import pytest

import tensor_ops_decode
from tensor_ops_decode import LogitsError
from tensor_ops_decode.nodes.sample import drawn
from tensor_ops_decode.scheduling.chosen_tokens import drawn_by_likeliest

PROMPT = [5, 6, 7]
SETTINGS = {
    "greedy": {},
    "sampled": {"temperature": 1.5},
    "hot": {"temperature": 1e6},
    "top_k": {"temperature": 1.0, "top_k": 3},
    "top_p": {"temperature": 2.0, "top_p": 0.7},
    "min_p": {"temperature": 2.0, "min_p": 0.05},
    "all cuts": {"temperature": 0.9, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "penalty_last_n": 8},
    "penalties and draws": {"temperature": 1.1, "frequency_penalty": 0.3, "top_p": 0.95},
    "bias": {"temperature": 1.0, "logit_bias": {65: 4.0, 66: -np.inf}},
}
each_settings = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


class Allowing:
    """Allows all tokens but some, and no more of them than `most`; or only those of `text`."""

    def __init__(self, *banned, most=None, text=()):
        self.banned, self.most, self.text = banned, most, text

    def allows(self, generated, token):
        return bool(self.allowed(generated)[token])

    def allowed(self, generated):
        mask = np.ones(260, dtype=bool)
        mask[list(self.banned)] = False
        if len(generated) < len(self.text):
            mask[:] = np.arange(260) == self.text[len(generated)]
        return mask

    def forced(self, generated, most):
        return [*self.text[len(generated) :]][:most]

    def is_complete(self, generated):
        return len(generated) == self.most

    def problem(self, generated):
        return "" if self.allowed(generated).any() else "this one allows none"


@pytest.fixture
def kernel(folder, backend):
    limits = {"max_num_batched_requests": 3, "max_num_batched_tokens": 8, "page_size": 8}
    with tensor_ops_decode.load(folder, backend, **limits) as model:
        yield model.kernel


def answer(kernel, **given):
    number = kernel.add_request(PROMPT, max_new_tokens=24, ignore_eos=True, **given)
    while number in kernel.requests:
        kernel.run(8)
    found = kernel.tokens(number)
    kernel.remove(number)
    return found


@each_settings
def test_one_that_allows_all_changes_no_token(kernel, settings):
    for seed in range(4):
        given = {**settings, "seed": seed}
        assert answer(kernel, constraint=Allowing(), **given) == answer(kernel, **given)


@each_settings
def test_what_is_not_allowed_is_as_what_is_banned(kernel, settings):
    banned = answer(kernel, **settings)[:6]
    bias = {**settings.get("logit_bias", {}), **dict.fromkeys(banned, -np.inf)}
    expected = answer(kernel, **{**settings, "logit_bias": bias})
    assert answer(kernel, constraint=Allowing(*banned), **settings) == expected
    assert not {*banned}.intersection(expected)


def test_requests_beside_it_have_the_tokens_that_they_have_alone(kernel):
    settings = {"temperature": 1.2, "max_new_tokens": 20, "ignore_eos": True}
    alone = [answer(kernel, temperature=1.2, constraint=each)[:20] for each in (None, Allowing(7))]
    numbers = [
        kernel.add_request(PROMPT, constraint=each, **settings) for each in (None, Allowing(7))
    ]
    while kernel.requests:
        kernel()
    assert [kernel.tokens(number) for number in numbers] == alone


def test_one_that_is_complete_ends_the_request(kernel):
    whole = answer(kernel)
    number = kernel.add_request(PROMPT, max_new_tokens=24, constraint=Allowing(most=5))
    while kernel.requests:
        kernel.run(32)
    assert (kernel.tokens(number), kernel.finish_reason(number)) == (whole[:5], "stop")


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.2, "top_p": 0.9}], ids=str)
def test_what_must_follow_is_fed_together_and_changes_no_token(kernel, settings):
    for text in (range(65, 66), range(65, 84), range(65, 95)):
        expected = answer(kernel, constraint=Allowing(text=text), logprobs=0, **settings)
        assert answer(kernel, constraint=Allowing(text=text), **settings) == expected
        assert expected[: len(text)] == [*text][:24]
    given = {"max_new_tokens": 24, "constraint": Allowing(text=range(65, 84)), **settings}
    number, steps = kernel.add_request(PROMPT, ignore_eos=True, **given), 0
    found = []
    while kernel.requests:
        found += kernel.run(1).get(number, [])
        steps += 1
    assert (found, steps) == (kernel.tokens(number), 8)  # of 8 tokens at most
    assert len(found) == 24


def test_log_probabilities_are_the_model_s_own(kernel):
    def logprobs(**given):
        number = kernel.add_request(PROMPT, max_new_tokens=1, logprobs=260, **given)
        kernel()
        return kernel.tokens(number)[0], kernel.logprobs(number)[0]

    token, plain = logprobs()
    other, constrained = logprobs(constraint=Allowing(token))
    assert other != token
    assert constrained.likeliest == plain.likeliest
    assert constrained.logprob == dict(plain.likeliest)[other]


@pytest.mark.parametrize(
    ("banned", "bias", "words"),
    [(range(260), {}, "this one allows none"), (range(1, 260), {0: -np.inf}, "constraint allows")],
)
def test_without_an_allowed_token_the_request_ends_with_an_error(kernel, banned, bias, words):
    other = kernel.add_request(PROMPT, max_new_tokens=3, ignore_eos=True)
    given = {"constraint": Allowing(*banned), "logit_bias": bias}
    number = kernel.add_request(PROMPT, max_new_tokens=3, **given)
    with pytest.raises(LogitsError, match=words):
        kernel()
    assert (kernel.finish_reason(number), kernel.tokens(number)) == ("error", [])
    while kernel.requests:
        kernel()
    assert kernel.tokens(other) == answer(kernel)[:3]


def test_what_is_none_is_refused(kernel):
    with pytest.raises(TypeError, match=r"constraint must have .*allows"):
        kernel.add_request(PROMPT, constraint="a+")
    with pytest.raises(ValueError, match="leave out constraint"):
        kernel.add_request(PROMPT, constraint=Allowing(), choose=False)
    assert kernel.requests == ()


CUTS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    for temperature, top_k, top_p, min_p in itertools.product(
        (0.3, 1.0, 8.0), (0, 1, 40), (1.0, 0.9, 0.3), (0.0, 1e-9, 0.02)
    )
]


@pytest.mark.parametrize("cuts", CUTS, ids=lambda cuts: "-".join(map(str, cuts.values())))
def test_the_likeliest_alone_are_sorted_and_the_draw_is_the_same(cuts):
    draw = np.random.default_rng(0)
    for seed, scale in itertools.product(range(6), (1.0, 5.0)):
        logits = np.float32(draw.normal(0, scale, 2_000))
        logits[:5] = logits.max(), logits.max(), -np.inf, logits.min(), -np.inf
        by = {**cuts, "seed": seed}
        assert drawn_by_likeliest(logits, by, seed) == drawn(np.float64(logits), by, seed)
