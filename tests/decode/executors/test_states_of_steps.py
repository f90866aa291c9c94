"""States that a step names: with which each token begins, and which it leaves."""

import numpy as np
import pytest

from tensor_ops_decode import Builder, Limits, State, Tensor

WORDS, COLUMNS, KEPT = 10, 12, 2
SLOTS, EXTRA = 2, 3


@pytest.fixture
def executable(executor):
    builder = Builder(Limits(SLOTS, 6, 6, 64, 4, 16, EXTRA))
    shapes = {"table": (WORDS, COLUMNS), "convolution": (COLUMNS * (KEPT + 1),)}
    for name, shape in shapes.items():
        builder.tensor(name, Tensor("f32", shape, {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    of = {"kept": KEPT, "activation": "none", "cache": builder.cache("s", State(KEPT, COLUMNS))}
    builder.add("short_conv", {"x": "x"}, {"weight": "convolution"}, of, output="y")
    builder.add("linear", {"x": "y"}, {"weight": "table"}, output="logits")
    builder.add("argmax", {"x": "logits"}, output="next")
    text = builder.program(["logits", "next"]).to_json()
    reason = executor.supports_program(text)
    if reason is not None:
        pytest.skip(reason)
    draw = np.random.default_rng(2)
    weights = {name: draw.standard_normal(each, np.float32) for name, each in shapes.items()}
    made = executor.compile_program(text, weights)
    yield made
    made.close()


def write(arrays, tokens, position=0, slot=0, before=-1, after=-1):
    """Write a step of one slot, the states of whose tokens are given one by one or for all."""
    count = len(tokens)
    arrays["tokens"][:count], arrays["slots"][:count] = tokens, slot
    arrays["positions"][:count] = np.arange(position, position + count)
    arrays["selected"][:count] = np.arange(count)
    arrays["state_before"][:count], arrays["state_after"][:count] = before, after


def step(executable, tokens, *given, **states):
    """Return the logits of each token of a step."""
    write(executable.arrays, tokens, *given, **states)
    executable.run(len(tokens), len(tokens))
    return executable.arrays["logits"][: len(tokens)].copy()


def test_a_token_goes_on_from_any_state_that_another_has_left(executable):
    right = step(executable, [1, 2, 3, 4, 5, 6])
    # After the second token the state is kept as the third, after the fourth as the last.
    before, after = [0, 0, 2, 0, 4, 4], [0, 2, 0, 4, 4, 1]
    found = step(executable, [1, 2, 3, 4, 5, 6], before=before, after=after)
    np.testing.assert_array_equal(found, right)
    for _ in range(2):  # it is there as long as nothing is written to it
        found = step(executable, [3, 4, 5, 6], 2, before=[2, 0, 0, 0], after=0)
        np.testing.assert_array_equal(found, right[2:])
    found = step(executable, [7], 6, 1, before=1)
    expected = step(executable, [7], 6, 0, before=0)
    np.testing.assert_array_equal(found, expected)


def test_a_first_token_begins_with_zeros_whatever_it_is_given(executable):
    right = step(executable, [1, 2, 3])
    step(executable, [9, 9, 9], 0, 1, after=[1, 1, 4])
    np.testing.assert_array_equal(step(executable, [1, 2, 3], before=4, after=4)[:1], right[:1])


def test_two_slots_may_begin_with_the_same_state(executable):
    right = step(executable, [1, 2, 3, 4])
    step(executable, [1, 2], after=[0, 3])
    write(executable.arrays, [3, 4], 2, 0, before=[3, 0], after=0)
    arrays = executable.arrays
    arrays["tokens"][2:4], arrays["slots"][2:4], arrays["positions"][2:4] = [3, 4], 1, [2, 3]
    arrays["state_before"][2:4], arrays["state_after"][2:4] = [3, 1], 1
    arrays["selected"][:4] = range(4)
    executable.run(4, 4)
    np.testing.assert_array_equal(arrays["logits"][:4], np.concatenate([right[2:], right[2:]]))


def test_steps_in_a_row_begin_with_what_the_one_before_has_left(executable):
    step(executable, [1, 2], after=[0, 3])
    chosen = []
    token, before = 3, 3
    for position in range(2, 7):
        step(executable, [token], position, before=before, after=0)
        token, before = int(executable.arrays["next"][0, 0]), 0
        chosen.append(token)
    write(executable.arrays, [3], 2, before=3, after=0)
    found = executable.run_steps(1, 5, "next", [[]])
    assert found[:, 0].tolist() == chosen


def test_looking_for_nan_changes_no_state(executable):
    if not hasattr(executable, "first_nan"):
        pytest.skip("it does not look for NaN")
    right = step(executable, [1, 2, 3, 4])
    step(executable, [1, 2], before=[-1, 3], after=[3, 0])
    assert executable.first_nan(2, 2, 0) is None
    np.testing.assert_array_equal(step(executable, [3, 4], 2), right[2:])
    np.testing.assert_array_equal(step(executable, [2], 1, before=3), right[1:2])


@pytest.mark.parametrize("name", ["state_before", "state_after"])
@pytest.mark.parametrize("number", [-2, SLOTS + EXTRA, 2**31 - 1, -(2**31)])
def test_a_state_that_there_is_none_of_is_refused(executable, name, number):
    right = step(executable, [1, 2, 3])
    write(executable.arrays, [1, 2, 3])
    executable.arrays[name][1] = number
    with pytest.raises(ValueError, match=rf"each {name} must be from -1 to 4, got {number}"):
        executable.run(3, 3)
    executable.arrays[name][1] = -1
    executable.run(3, 3)
    np.testing.assert_array_equal(executable.arrays["logits"][:3], right)
