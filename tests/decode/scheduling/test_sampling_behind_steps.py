"""Typical p, XTC and DRY: tokens are those that their definitions choose of a step's logits."""

import math
import re

import numpy as np
import pytest
import torch
from transformers import TypicalLogitsWarper

from opened_models import opened_models
from tensor_ops_decode.nodes.sample import drawn, philox
from tensor_ops_decode.scheduling.chosen_tokens import drawn_by_likeliest, most_likely, typical
from tensor_ops_decode.scheduling.sampling import Sampling

PROMPT = [*b"one two one two one"]
DRY = {"dry_multiplier": 3.0, "dry_allowed_length": 1, "dry_sequence_breakers": [[10], [32]]}
BIAS = {"logit_bias": {101: 2.5, 32: -3.0, 110: -math.inf}}
CASES = {
    "typical": {"temperature": 1.5, "typical_p": 0.4},
    "typical of few": {"temperature": 1.0, "typical_p": 0.7, "top_k": 9, "top_p": 0.8},
    "xtc": {"temperature": 2.0, "xtc_probability": 0.6, "xtc_threshold": 0.02},
    "xtc of few": {"temperature": 2.0, "xtc_probability": 1, "min_p": 0.2, "top_p": 0.9},
    "dry": DRY,
    "dry and draws": {**DRY, "temperature": 1.2, "dry_penalty_last_n": 12},
    "everything": {
        **DRY, **BIAS, "temperature": 1.7, "top_k": 60, "typical_p": 0.9, "top_p": 0.95,
        "min_p": 0.01, "xtc_probability": 0.7, "xtc_threshold": 0.05, "presence_penalty": 0.4,
        "frequency_penalty": 0.2, "repetition_penalty": 1.2,
    },
}  # fmt: skip
each_case = pytest.mark.parametrize("case", CASES)


def chosen(logits, tokens, allowed=None, **settings):
    """Return the token that follows, by the definitions of all settings in their order."""
    how = Sampling(**settings)
    x = logits.astype(np.float64)
    counts = np.bincount(tokens, minlength=len(x))
    for token, bias in how.logit_bias.items():
        x[token] += bias
    x -= how.presence_penalty * (counts > 0) + how.frequency_penalty * counts
    penalties = np.where(x > 0, 1 / how.repetition_penalty, how.repetition_penalty)
    x[counts > 0] *= penalties[counts > 0]
    for token, penalty in how.dry_penalties(tokens).items():  # which has a test of its own
        x[token] -= penalty
    if allowed is not None:
        x[~allowed] = -np.inf
    if how.temperature == 0:
        return int(np.argmax(x))
    position = len(tokens) - 1
    kept = np.argsort(-x, kind="stable")[: how.top_k or len(x)]
    p = np.exp((x - x.max()) / how.temperature)
    if how.typical_p < 1:
        share = p[kept] / p[kept].sum()
        information = -np.log(np.maximum(share, 1e-300))
        order = np.argsort(np.abs(information - share @ information), kind="stable")
        number = np.count_nonzero(np.cumsum(share[order]) <= how.typical_p) + 1
        kept = kept[np.sort(order[:number])]
    kept = kept[: np.count_nonzero(np.cumsum(p[kept]) / p[kept].sum() < how.top_p) + 1]
    kept = kept[p[kept] >= how.min_p * p[kept].max()]
    if philox(how.seed, 2**32 + position) * 2.0**-32 < how.xtc_probability:
        number = np.count_nonzero(p[kept] / p[kept].sum() >= how.xtc_threshold)
        kept = kept[max(number - 1, 0) :]
    u = philox(how.seed, position) * 2.0**-32
    return int(kept[np.searchsorted(np.cumsum(p[kept]), u * p[kept].sum(), side="right")])


@pytest.fixture(scope="module")
def kernels(folder):
    limits = {"max_num_batched_requests": 4, "max_num_batched_tokens": 32}
    with opened_models(folder, **limits) as model:
        yield lambda backend: model(backend).kernel


@pytest.fixture
def kernel(kernels, backend):
    return kernels(backend)


class Even:
    """Allows the even tokens."""

    def allows(self, generated, token):
        return token % 2 == 0

    def allowed(self, generated):
        return np.arange(260) % 2 == 0

    def forced(self, generated, most):
        return []

    def is_complete(self, generated):
        return False

    def problem(self, generated):
        return ""


@each_case
def test_tokens_are_those_of_the_definition_alone_and_together(kernel, case):
    given = {"max_new_tokens": 12, "ignore_eos": True, **CASES[case]}
    constraints, expected = {}, {}
    for seed in range(4):
        constraint = Even() if seed == 3 else None
        number = kernel.add_request(PROMPT, seed=seed, constraint=constraint, **given)
        constraints[number], expected[number] = (seed, constraint), []
    for _ in range(12):
        for number in kernel():
            seed, constraint = constraints[number]
            allowed = None if constraint is None else constraint.allowed([])
            tokens, logits = [*PROMPT, *expected[number]], kernel.logits(number)
            expected[number].append(chosen(logits, tokens, allowed, seed=seed, **CASES[case]))
    assert {number: kernel.tokens(number) for number in expected} == expected
    first, *_ = expected
    alone = kernel.add_request(PROMPT, seed=0, **given)
    while kernel.requests:
        kernel.run(12)
    assert kernel.tokens(alone) == expected[first]
    assert len({*map(tuple, expected.values())}) > (1 if case == "dry" else 2)


def test_log_probabilities_are_the_model_s_own(kernel):
    def logprobs(**given):
        number = kernel.add_request(PROMPT, max_new_tokens=1, logprobs=260, **given)
        kernel()
        return kernel.tokens(number)[0], kernel.logprobs(number)[0]

    _, plain = logprobs()
    token, found = logprobs(seed=1, **CASES["everything"])
    assert found.likeliest == plain.likeliest
    assert found.logprob == dict(plain.likeliest)[token]


def test_what_does_nothing_leaves_the_choice_to_the_steps():
    for given in (
        {"typical_p": 0.5, "xtc_probability": 1.0},  # the likeliest token is taken
        {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.51},
        {"temperature": 1.0, "dry_sequence_breakers": [[1]]},
    ):
        assert not Sampling(**given).is_beyond_steps
    for settings in CASES.values():
        assert Sampling(**settings).is_beyond_steps


@pytest.mark.parametrize(
    ("name", "wrong", "expected"),
    [
        (
            "typical_p",
            (0, -0.1, 1.01, math.nan, True, "x", None),
            "a number larger than 0, up to 1",
        ),
        ("xtc_probability", (-0.1, 1.01, math.nan, True, None), "a number from 0 to 1"),
        ("xtc_threshold", (-0.1, 1.01, math.nan, True, None), "a number from 0 to 1"),
        ("dry_multiplier", (-0.1, 1e39, math.nan, True), "a number 0 or larger, and finite"),
        ("dry_base", (0.99, 1e39, math.nan, True), "a number 1 or larger, and finite"),
        ("dry_allowed_length", (-1, 2**31, 1.5, True), "an integer from 0 to 2147483647"),
        ("dry_penalty_last_n", (0, -1, 1.5, True), "a positive integer"),
    ],
)
def test_what_cannot_be_is_refused(name, wrong, expected):
    for value in wrong:
        got = re.escape(f"got {value!r}")
        with pytest.raises(ValueError, match=rf"^{name} must be {expected}.*, {got}"):
            Sampling(**{name: value})


def test_typical_p_keeps_what_the_class_of_transformers_does():
    draw = np.random.default_rng(0)
    for scale in (0.0, 0.1, 1.0, 4.0, 12.0):
        logits = np.float32(draw.normal(0, scale, 3_000))
        if not scale:
            logits += np.arange(3_000) % 7  # as it keeps all of several equal ones, or none
            logits[7:] = -np.inf
        logits[draw.integers(7, 3_000, 5)] = -np.inf
        for mass in (0.01, 0.3, 0.9, 0.999):
            theirs = TypicalLogitsWarper(mass)(None, torch.tensor(logits)[None].double() / 0.5)
            right = np.flatnonzero(np.isfinite(theirs[0].numpy()))
            assert typical(logits, 0.5, mass).tolist() == right.tolist()


def test_typical_p_may_leave_out_the_likeliest():
    p = np.array([0.4, *[0.05] * 12])
    assert typical(np.log(p), 1.0, 0.21).tolist() == [1, 2, 3, 4, 5]
    assert typical(np.array([1.0, np.inf, 2.0, np.inf]), 1.0, 0.3).tolist() == [1]
    assert typical(np.array([3.0]), 1.0, 0.999).tolist() == [0]
    assert most_likely(np.array([1.0, 3.0, 3.0, 2.0, 3.0]), 2).tolist() == [1, 2]
    assert most_likely(np.arange(3.0), 0).tolist() == [0, 1, 2]


def test_xtc_excludes_all_but_the_least_likely_of_the_likely():
    logits = np.append(np.float32(np.log([0.1, 0.3, 0.06, 0.34, 0.2])), np.float32(-np.inf))
    by = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}

    def shares(excluded_from, **more):
        tokens = [
            drawn_by_likeliest(logits, {**by, **more, "seed": 5}, position, excluded_from)
            for position in range(400)
        ]
        return np.bincount(tokens, minlength=6) / 400

    assert np.flatnonzero(shares(0.19)).tolist() == [0, 2, 4]
    assert shares(0.19)[4] == pytest.approx(0.2 / 0.36, abs=0.08)
    assert np.flatnonzero(shares(0.5)).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(shares(0.0)).tolist() == [2]
    far = np.float32([0, -20, -np.inf])
    assert {drawn_by_likeliest(far, {**by, "seed": 5}, each, 0.0) for each in range(40)} == {1}
    # Of 0.34 and 0.3 that top_k keeps, both have 0.3 or more.
    assert np.flatnonzero(shares(0.3, top_k=2)).tolist() == [1]


def test_a_coin_of_xtc_falls_as_often_as_its_probability():
    how = Sampling(temperature=1, xtc_probability=0.3, xtc_threshold=0.25, seed=11)
    found = [how.excluded_from(position) for position in range(2_000)]
    assert {*found} == {0.25, 1.0}
    assert found.count(0.25) / 2_000 == pytest.approx(0.3, abs=0.03)
    assert found == [how.excluded_from(position) for position in range(2_000)]


@pytest.mark.parametrize("excluded_from", [0.0, 1e-9, 0.01, 0.3])
def test_few_are_sorted_and_the_draw_is_that_of_all(excluded_from):
    draw = np.random.default_rng(0)
    for seed in range(8):
        for scale, cut in ((0.01, {}), (1.0, {}), (5.0, {}), (2.0, {"top_p": 0.9, "min_p": 0.001})):
            logits = np.float32(draw.normal(0, scale, 1_000))
            by = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed, **cut}
            found = drawn_by_likeliest(logits, by, seed, excluded_from)
            assert found == drawn(np.float64(logits), by, seed, 0.0, excluded_from)
