"""Steps in a row: what every executor does in them, and that text comes out as by single steps."""

import numpy as np
import pytest

import tensor_ops_decode
from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder

WORDS, SLOTS, LENGTH = 24, 4, 32
NEXT = np.random.default_rng(6).permutation(WORDS)  # the token that each is followed by
PROMPTS = ["a", "Once upon a time", "12345678901234567890", "été"]


def text_of(*, has_fed):
    """Return such a program as JSON."""
    builder = Builder(Limits(SLOTS, 8, SLOTS, LENGTH, 4, SLOTS * 8))
    builder.tensor("table", Tensor("bf16", (WORDS, WORDS), {"attached": True}))
    builder.tensor("next", Tensor("bf16", (WORDS, WORDS), {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    if has_fed:
        builder.add("argmax", {"x": "x"}, output="fed")
    builder.add("select", {"x": "x"}, output="last")
    builder.add("linear", {"x": "last"}, {"weight": "next"}, output="logits")
    builder.add("argmax", {"x": "logits"}, output="chosen")
    outputs = ["logits", "chosen", *(["fed"] if has_fed else [])]
    return builder.program(outputs).to_json()


@pytest.fixture
def executable(executor):
    """A program that chooses the token which `NEXT` says, and has no requests but their tokens.

    It has an output of the fed tokens too, where the executor runs a second node that chooses some.
    """
    programs = [text_of(has_fed=has_fed) for has_fed in (True, False)]
    text = next(each for each in programs if executor.supports_program(each) is None)
    table = np.eye(WORDS, dtype=np.float32)
    table = (table.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
    tensors = {"table": table, "next": np.ascontiguousarray(table[np.argsort(NEXT)])}
    made = executor.compile_program(text, tensors)
    made.arrays["slots"][:3], made.arrays["positions"][:3] = [2, 0, 3], [5, 0, 9]
    made.arrays["tokens"][:3], made.arrays["selected"][:3] = [1, 7, 20], range(3)
    yield made
    made.close()


def followers(count):
    """Return the tokens that follow those of the first step, so many times."""
    found = [np.array([1, 7, 20])]
    for _ in range(count):
        found.append(NEXT[found[-1]])
    return np.array(found[1:])


def test_each_is_fed_what_the_one_before_has_chosen(executable):
    chosen = executable.run_steps(3, 9, "chosen", [[], [], []])
    assert chosen.dtype == np.int32
    np.testing.assert_array_equal(chosen, followers(9))
    np.testing.assert_array_equal(executable.arrays["tokens"][:3], followers(8)[-1])
    np.testing.assert_array_equal(executable.arrays["positions"][:3], [13, 8, 17])
    np.testing.assert_array_equal(executable.arrays["chosen"][:3, 0], chosen[-1])


def test_any_output_of_tokens_is_what_is_fed(executable):
    if "fed" not in executable.arrays:
        pytest.skip("the executor runs one node that chooses tokens")
    chosen = executable.run_steps(3, 4, "fed", [[], [], []])
    np.testing.assert_array_equal(chosen, [[1, 7, 20]] * 4)


def test_an_end_token_counts_for_its_own_row(executable):
    expected = followers(9)
    last = next(step for step in range(9) if expected[step, 1] not in expected[:step, 1])
    ends = [[], [int(expected[last, 1])], []]
    chosen = executable.run_steps(3, 9, "chosen", ends)
    np.testing.assert_array_equal(chosen, expected[: last + 1])


def test_as_many_run_as_the_caller_says_whatever_the_time(executable):
    """Ranks that are given the same number take the same steps."""
    for count in (1, 2, 9):
        executable.arrays["positions"][:3] = 0
        assert len(executable.run_steps(3, count, "chosen", [[], [], []])) == count
    with pytest.raises(TypeError):
        executable.run_steps(3, 9, "chosen", [[], [], []], 0.0)


@pytest.fixture
def model(runnable, backend):
    options = {"max_num_batched_requests": 3, "max_num_batched_tokens": 8, "page_size": 8}
    with tensor_ops_decode.load(runnable, backend, **options) as model:
        yield model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 1.5, "top_p": 0.9, "seed": 3},
        {"temperature": 1.0, "logit_bias": {65: 3.0, 66: -np.inf}},
        {"temperature": 1.0, "repetition_penalty": 1.3},
        {"logprobs": 2},
        {"ignore_eos": True, "max_new_tokens": 90},
    ],
)
def test_answers_are_those_of_single_steps(model, settings, monkeypatch):
    given = {"max_new_tokens": 40, **settings}
    several = model.generate(PROMPTS, **given)
    monkeypatch.setattr(PersistentKernel, "run", lambda kernel, *_, **__: kernel())
    model.kernel.reset()
    assert several == model.generate(PROMPTS, **given)


def test_logits_after_sampled_steps_are_those_of_single_steps(model):
    kernel, sampling = model.kernel, {"temperature": 1.5, "top_k": 9}
    several = [kernel.add_request([each], seed=each, **sampling) for each in (1, 2, 3)]
    kernel.run(20)
    logits = [kernel.logits(each) for each in several]
    tokens = [kernel.tokens(each) for each in several]
    kernel.reset()
    single = [kernel.add_request([each], seed=each, **sampling) for each in (1, 2, 3)]
    for _ in range(20):
        kernel()
    assert [kernel.tokens(each) for each in single] == tokens
    np.testing.assert_array_equal([kernel.logits(each) for each in single], logits)


def test_no_step_is_run_after_a_stop_string(model, monkeypatch):
    """Nothing that follows it is computed, or would be found in the caches."""
    (longer,) = model.generate(PROMPTS[1], max_new_tokens=60, ignore_eos=True)
    stop = longer.text[10:13]
    fed = []
    remove = model.kernel.remove

    def noting(request):
        fed.append(len(model.kernel.tokens(request)))
        remove(request)

    monkeypatch.setattr(model.kernel, "remove", noting)
    (answer,) = model.generate(PROMPTS[1], max_new_tokens=60, ignore_eos=True, stop=stop)
    assert answer.text == longer.text[: longer.text.index(stop)]
    assert fed == [len(answer.tokens)]
