"""What the node ``sample`` draws: the distribution that its settings describe."""

import mpmath
import numpy as np
import pytest

from tensor_ops_decode import reference
from tensor_ops_decode.builder import Builder
from tensor_ops_decode.program import Limits, Tensor

# Known probabilities, in no order: token i is drawn by its rank.
RANKS = np.random.default_rng(8).permutation(40)
PROBABILITIES = 1 / (1 + RANKS) / np.sum(1 / np.arange(1, 41))
SLOTS, POSITIONS = 10, 100
CASES = {
    "as they are": {"temperature": 1.0},
    "colder": {"temperature": 0.7},
    "hotter": {"temperature": 2.5},
    "top_k": {"temperature": 1.0, "top_k": 7},
    "top_p": {"temperature": 1.0, "top_p": 0.8},
    "min_p": {"temperature": 1.0, "min_p": 0.1},
    "all three": {"temperature": 1.3, "top_k": 20, "top_p": 0.8, "min_p": 0.07},
}


def distribution(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Return the probability of each token, from the settings' definitions."""
    p = PROBABILITIES ** (1 / temperature)
    kept = np.argsort(-p)[: top_k or len(p)]
    shares = np.cumsum(p[kept]) / p[kept].sum()
    kept = kept[: np.searchsorted(shares, np.float32(top_p)) + 1]
    kept = kept[p[kept] >= np.float32(min_p) * p.max()]
    result = np.zeros_like(p)
    result[kept] = p[kept] / p[kept].sum()
    return result


def draws(executor, count, **settings):
    """Return so many tokens, of requests with seeds of their own and of one position each."""
    step = SLOTS * POSITIONS
    builder = Builder(Limits(SLOTS, step, 1, POSITIONS, POSITIONS, 1))
    builder.tensor("table", Tensor("f32", (1, len(RANKS)), {"attached": True}))
    logits = builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="logits")
    program = builder.program([builder.add("sample", {"x": logits}, output="next")])
    table = np.log(PROBABILITIES)[None].astype(np.float32)
    executable = executor.compile_program(program.to_json(), {"table": table})
    arrays, found = executable.arrays, []
    arrays["slots"][:] = np.repeat(np.arange(SLOTS), POSITIONS)
    arrays["positions"][:] = np.tile(np.arange(POSITIONS), SLOTS)
    for name, value in settings.items():
        arrays[name][:] = value
    for first in range(0, count // POSITIONS, SLOTS):
        arrays["seed"][:] = np.arange(first, first + SLOTS)
        executable.run(step, 0)
        found.append(arrays["next"][:step, 0].copy())
    executable.close()
    return np.concatenate(found)


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
