"""Draws of the node ``sample``: the distribution that its settings describe."""

import mpmath
import numpy as np
import pytest

from tensor_ops_decode import reference
from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder

# Known probabilities, in no order: token i is drawn by its rank.
RANKS = np.random.default_rng(8).permutation(40)
PROBABILITIES = 1 / (1 + RANKS) / np.sum(1 / np.arange(1, 41))
SLOTS, POSITIONS = 10, 100
# By token: what is added to its logit, and its penalty.
EDITS = {3: (0.0, 1.5), 11: (-np.inf, 1.0), 12: (1.25, 1.0), 13: (-0.5, 2.0), 14: (1.5, 1.1)}
CASES = {
    "as they are": {"temperature": 1.0},
    "colder": {"temperature": 0.7},
    "hotter": {"temperature": 2.5},
    "top_k": {"temperature": 1.0, "top_k": 7},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
    "min_p": {"temperature": 1.0, "min_p": 0.1},
    "edits": {"temperature": 1.0, "edits": EDITS},
    "everything": {"temperature": 0.8, "top_k": 9, "top_p": 0.95, "min_p": 0.01, "edits": EDITS},
    "all three": {"temperature": 1.3, "top_k": 20, "top_p": 0.8, "min_p": 0.07},
}


def distribution(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, edits=()):
    """Return the probability of each token, from the settings' definitions."""
    logits = np.log(PROBABILITIES)
    for token, (bias, penalty) in dict(edits).items():
        logits[token] += bias
        logits[token] *= penalty if logits[token] < 0 else 1 / penalty
    p = np.exp(logits / temperature)
    kept = np.argsort(-p)[: top_k or len(p)]
    shares = np.cumsum(p[kept]) / p[kept].sum()
    kept = kept[: np.searchsorted(shares, np.float32(top_p)) + 1]
    kept = kept[p[kept] >= np.float32(min_p) * p.max()]
    result = np.zeros_like(p)
    result[kept] = p[kept] / p[kept].sum()
    return result


def compiled(executor, logits):
    """Return an executable that draws from these logits at each position of each slot."""
    step = SLOTS * POSITIONS
    builder = Builder(Limits(SLOTS, step, 1, POSITIONS, POSITIONS, 1))
    builder.tensor("table", Tensor("f32", (1, len(logits)), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="logits")
    program = builder.program([x, builder.add("sample", {"x": x}, output="next")])
    tensors = {"table": logits[None].astype(np.float32)}
    executable = executor.compile_program(program.to_json(), tensors)
    executable.arrays["slots"][:] = np.repeat(np.arange(SLOTS), POSITIONS)
    executable.arrays["positions"][:] = np.tile(np.arange(POSITIONS), SLOTS)
    return executable


def draws(executor, count, edits=(), **settings):
    """Return so many tokens, of requests with seeds of their own and of one position each."""
    executable = compiled(executor, np.log(PROBABILITIES))
    arrays, found, step = executable.arrays, [], SLOTS * POSITIONS
    for name, value in settings.items():
        arrays[name][:] = value
    write_edits(arrays, dict(edits))
    for first in range(0, count // POSITIONS, SLOTS):
        arrays["seed"][:] = np.arange(first, first + SLOTS)
        executable.run(step, 0)
        found.append(arrays["next"][:step, 0].copy())
    executable.close()
    return np.concatenate(found)


def write_edits(arrays, edits):
    """Let every slot have these edits, a bias and a penalty by token."""
    arrays["num_edits"][:] = len(edits)
    for place, (token, (bias, penalty)) in enumerate(edits.items()):
        arrays["edited_tokens"][:, place] = token
        arrays["edit_biases"][:, place], arrays["edit_penalties"][:, place] = bias, penalty


def assert_follows(tokens, expected):
    """Assert that tokens pass the chi-squared test at a probability of one in a thousand."""
    counts = np.bincount(tokens, minlength=len(expected))
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], len(tokens) * expected[expected > 0]
    statistic = np.sum((counts - expected) ** 2 / expected)
    freedom = len(expected) - 1
    p = mpmath.gammainc(freedom / 2, statistic / 2, mpmath.inf, regularized=True)
    assert p > 1e-3, f"chi-squared is {statistic:.1f} with {freedom} degrees of freedom"


@pytest.mark.parametrize("case", CASES)
def test_tokens_have_the_distribution_that_the_settings_describe(executor, case):
    # The executor of python takes a hundred times as long; nightly it draws as many.
    count = 2_000 if executor is reference else 100_000
    assert_follows(draws(executor, count, **CASES[case]), distribution(**CASES[case]))


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_a_hundred_thousand_tokens_of_the_reference_have_it_too(case):
    assert_follows(draws(reference, 100_000, **CASES[case]), distribution(**CASES[case]))


def test_the_chi_squared_test_notices_a_wrong_distribution(executor):
    tokens = draws(executor, 5_000, temperature=1.0)
    with pytest.raises(AssertionError, match="chi-squared"):
        assert_follows(tokens, distribution(temperature=1.1))


@pytest.mark.parametrize("case", CASES)
def test_a_seed_draws_the_same_tokens_on_every_executor(executor, case):
    found, right = (draws(each, 1_000, **CASES[case]) for each in (executor, reference))
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({}, 3),
        ({3: (0.0, 1.5)}, 0),  # a positive logit is divided
        ({3: (-np.inf, 1.0), 0: (-np.inf, 2.0)}, 1),
        ({2: (100.0, 1.0)}, 2),
        ({2: (100.0, 1.0), 3: (-9.0, 1.0), 1: (98.0, 1.0)}, 1),
        # A negative one is multiplied, after its bias is added: -2 beside -2.5.
        (dict.fromkeys(range(4), (-np.inf, 1.0)) | {4: (2.0, 2.0), 5: (0.0, 2.0)}, 4),
        (dict.fromkeys(range(6), (-np.inf, 1.0)), -1),  # nothing is left to choose
    ],
)
def test_the_largest_logit_is_that_after_the_edits(executor, edits, expected):
    executable = compiled(executor, np.array([2.0, 1.5, -90.0, 2.5, -3.0, -1.25]))
    write_edits(executable.arrays, edits)
    executable.run(5, 0)
    assert executable.arrays["next"][:5].tolist() == [[expected]] * 5
    # The logits that a caller reads are the model's own.
    assert executable.arrays["logits"][0].tolist() == [2.0, 1.5, -90.0, 2.5, -3.0, -1.25]
    executable.close()


def test_a_ban_holds_whatever_the_logit_is(executor):
    executable = compiled(executor, np.array([1.0, np.inf, 2.0, np.nan]))
    write_edits(executable.arrays, {1: (-np.inf, 1.0), 3: (-np.inf, 1.5)})
    for temperature in (0.0, 0.1):
        executable.arrays["temperature"][:] = temperature
        executable.run(1, 0)
        assert executable.arrays["next"][0] == 2
    executable.close()


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("num_edits", 2, -1),
        ("num_edits", 2, POSITIONS + 1025),
        ("edited_tokens", (2, 1), -1),
        ("edited_tokens", (2, 1), 4),
        ("edit_biases", (2, 0), np.nan),
        ("edit_biases", (2, 0), np.inf),
        ("edit_penalties", (2, 1), 0),
        ("edit_penalties", (2, 1), np.nan),
        ("edit_penalties", (2, 1), np.inf),
    ],
)
def test_wrong_edits_are_refused_before_anything_is_written(executor, name, at, value):
    executable = compiled(executor, np.arange(4.0))
    arrays = executable.arrays
    write_edits(arrays, {0: (1.0, 1.0), 3: (-1.0, 2.0)})
    arrays[name][at] = value
    arrays["next"][:] = 7
    with pytest.raises(ValueError, match=rf"{name}.*2.*must be"):
        executable.run(SLOTS * POSITIONS, 0)
    assert np.all(arrays["next"] == 7)
    executable.run(2 * POSITIONS, 0)  # the slots before are right
    executable.close()
