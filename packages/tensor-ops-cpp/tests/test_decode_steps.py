"""Steps in a row: the bits of single steps, where they end, and what is refused before any."""

import copy
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from decode_llama import WORDS, Llama, run_step

import tensor_ops_cpp

LLAMA = Llama()
# By slot: as many tokens as there are before the steps, so that they cross pages at different ones.
PROMPTS = {4: [3, 1, 4], 0: [1, 5, 9, 2, 6, 5, 3], 7: [8]}
NO_ENDS = [[]] * len(PROMPTS)


def prepared(executable, output="sample"):
    """Read the prompts, write the first of the steps in a row, and return its tokens."""
    arrays = executable.arrays
    arrays["temperature"][:], arrays["top_p"][:], arrays["seed"][:] = 1.3, 0.9, np.arange(9)
    arrays["num_edits"][:4], arrays["edit_biases"][:] = 2, 0.5
    arrays["edit_penalties"][:] = 1.2
    run_step(executable, [(slot, 0, tokens) for slot, tokens in PROMPTS.items()])
    ends = np.cumsum([len(tokens) for tokens in PROMPTS.values()]) - 1
    chosen = arrays[output][ends, 0].tolist()
    positions = [len(tokens) for tokens in PROMPTS.values()]
    for name, values in (("tokens", chosen), ("positions", positions), ("slots", list(PROMPTS))):
        arrays[name][:3] = values
    arrays["selected"][:3] = range(3)
    return chosen


def single_steps(executable, output, count):
    """The choices of `count` steps, one call each, and the logits of the last."""
    arrays, found = executable.arrays, []
    prepared(executable, output)
    for _ in range(count):
        executable.run(3, 3)
        found.append(arrays[output][:3, 0].copy())
        arrays["tokens"][:3] = found[-1]
        arrays["positions"][:3] += 1
    return np.array(found), arrays["logits"][:3].copy()


@pytest.fixture
def executable():
    made = LLAMA.compile(num_workers=2)
    yield made
    made.close()


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("output", ["argmax", "sample"])
@pytest.mark.parametrize(
    "model", [{}, {"window": 7}, {"paged": False, "dtype": "float16"}, {"formats": ["q4_1", "f32"]}]
)
def test_they_have_the_bits_of_single_steps(model, output, workers):
    made = Llama(**model).compile(num_workers=workers)
    expected, logits = single_steps(made, output, 13)
    prepared(made, output)
    chosen = made.run_steps(3, 13, output, NO_ENDS)
    assert (chosen.dtype, chosen.shape) == (np.int32, (13, 3))
    np.testing.assert_array_equal(chosen, expected)
    np.testing.assert_array_equal(made.arrays["logits"][:3], logits)
    # The arrays are those of the last step, so that the next one follows.
    np.testing.assert_array_equal(made.arrays["tokens"][:3], expected[-2])
    np.testing.assert_array_equal(made.arrays["positions"][:3], [3 + 12, 7 + 12, 1 + 12])
    made.close()


@pytest.mark.parametrize("held", [1, 2, 3, 5])
def test_they_have_the_same_bits_on_any_number_of_the_workers(held):
    made = LLAMA.compile(num_workers=5)
    expected, logits = single_steps(made, "sample", 13)
    made.hold_workers(held)
    found, same_logits = single_steps(made, "sample", 13)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(same_logits, logits)
    prepared(made)
    np.testing.assert_array_equal(made.run_steps(3, 13, "sample", NO_ENDS), expected)
    made.close()


def test_they_stop_after_an_end_token_of_its_own_request(executable):
    expected, _ = single_steps(executable, "sample", 13)
    row, step = next(
        (row, step)
        for step in range(3, 13)
        for row in range(3)
        if expected[step, row] not in expected[:step, row]
    )
    ends = [[int(expected[step, row]), WORDS - 1] if each == row else [] for each in range(3)]
    prepared(executable)
    chosen = executable.run_steps(3, 13, "sample", ends)
    np.testing.assert_array_equal(chosen, expected[: step + 1])


def test_they_stop_after_a_token_that_cannot_be_fed():
    """The logits have more columns than the embedding has rows."""
    program, words = copy.deepcopy(LLAMA.program), 60
    program["tensors"]["embedding"]["shape"][0] = words
    tensors = {**LLAMA.tensors, "embedding": LLAMA.tensors["embedding"][:words].copy()}
    made = tensor_ops_cpp.compile_program(json.dumps(program), tensors)
    made.arrays["num_edits"][0], made.arrays["edit_penalties"][0, 0] = 1, 1
    made.arrays["edited_tokens"][0, 0], made.arrays["edit_biases"][0, 0] = words, 1e6
    run_step(made, [(0, 0, [1])])
    assert made.run_steps(1, 8, "sample", [[]]).tolist() == [[words]]
    made.close()


def test_after_closing_they_are_an_error():
    made = LLAMA.compile()
    made.close()
    with pytest.raises(RuntimeError, match="run_steps: the executable is closed"):
        made.run_steps(1, 2, "sample", [[]])


def test_those_of_two_threads_take_turns():
    """Each has an executable, and a third thread reads the weights of both."""
    made = [LLAMA.compile(num_workers=2) for _ in range(2)]
    expected, _ = single_steps(made[0], "argmax", 13)

    def rounds(executable):
        for _ in range(10):
            prepared(executable, "argmax")
            found = executable.run_steps(3, 13, "argmax", NO_ENDS)
            np.testing.assert_array_equal(found, expected)

    def reads():
        return [each.read_bandwidth() for each in made * 10]

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(rounds, each) for each in made] + [pool.submit(reads)]
        for job in jobs:
            job.result(timeout=120)
    for each in made:
        each.close()
