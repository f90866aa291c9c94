"""Measurements of `tensor-ops bench decode`, and what it makes of them."""

import json
from unittest.mock import MagicMock

import numpy as np
import pytest

from tensor_ops import PersistentKernel
from tensor_ops_decode import Builder, Limits, Tensor
from tensor_ops_decode.measure.benchmark import ProfiledStep, Round, Samples, measure, random_prompt
from tensor_ops_decode.measure.figures import DecodeFigures, Stage, node_times
from tensor_ops_decode.measure.report import draw, format_figures
from tensor_ops_decode.scheduling.step_times import StepProfile

ROW = 64 * 4
BYTES = ROW + 10_000 * ROW  # of a row of the table, and of all of it


@pytest.fixture(scope="module")
def program():
    """Two nodes that read weights, and two that read none."""
    builder = Builder(Limits(1, 4, 1, 64, 16, 4))
    builder.tensor("table", Tensor("f32", (10_000, 64), {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    builder.add("select", {"x": "x"}, output="last")
    builder.add("linear", {"x": "last"}, {"weight": "table"}, output="logits")
    builder.add("argmax", {"x": "logits"}, output="next")
    return builder.program(["logits", "next"])


def step(work, *, wait=0.0, between=0.0, tokens=1, context=1, phases=([0], [1], [2], [3])):
    """A step of two threads that work so long on the nodes; the second one waits at the end."""
    waits = np.zeros((2, 4))
    waits[0, 3] = wait
    seconds = sum(work) + wait
    profile = StepProfile({}, seconds, np.array([work, work]), waits, phases)
    return ProfiledStep(tokens, context, seconds + between, profile)


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        ({"work": [0, 0, 5.0, 0]}, "memory bandwidth"),
        ({"work": [0, 0, 50.0, 0]}, "arithmetic"),
        ({"work": [0, 0, 5.0, 0], "wait": 9.0}, "waiting for threads"),
        ({"work": [0, 0, 5.0, 0], "between": 9.0}, "Python between steps"),
    ],
)
def test_the_largest_part_of_the_time_of_a_token_limits(program, times, limit):
    stage = Stage.of(program, [step(**times)], 1.0, BYTES / 6)  # six seconds to read the bytes
    assert stage.limit == limit
    assert stage.parts == {
        "memory bandwidth": min(6.0, times["work"][2]),
        "arithmetic": max(0.0, times["work"][2] - 6),
        "waiting for threads": times.get("wait", 0.0),
        "Python between steps": times.get("between", 0.0),
    }
    assert stage.seconds == step(**times).seconds


def test_steps_are_divided_among_their_tokens_and_nodes_are_added_by_kind(program):
    steps = [step([1.0, 0, 6.0, 0], tokens=4), step([1.0, 0, 2.0, 0], tokens=4)]
    stage = Stage.of(program, steps, 3.0, 1e9)
    assert [(each.kind, each.nodes, each.seconds) for each in stage.kinds] == [
        ("linear", 1, 1.0),
        ("embed", 1, 0.25),
        ("select", 1, 0.0),
        ("argmax", 1, 0.0),
    ]
    assert [each.bytes for each in stage.kinds[:2]] == [2 * 10_000 * ROW / 8, 2 * ROW / 8]


def test_nodes_that_run_together_are_one(program):
    of_steps = [step([1.0, 0, 6.0, 0], phases=([0], (1, 2), [3]))]
    stage = Stage.of(program, of_steps, 3.0, 1e9)
    assert [each[:3] for each in stage.kinds[:2]] == [("select+linear", 1, 6.0), ("embed", 1, 1.0)]
    assert [each.bytes for each in stage.kinds] == [10_000 * ROW, ROW, 0]


@pytest.fixture(scope="module")
def figures(program):
    """Figures of rounds of which two were disturbed."""
    seconds = [1e-3, 1e-3, 1e-3, 9e-3]
    samples = Samples(
        prompt=[step([0, 0, 8e-3, 0], tokens=4, context=4)],
        rounds=[Round(4, 4 * each, 4e9) for each in seconds],
        decode=[step([0, 0, each, 0], between=1e-4, context=9) for each in seconds[::-1]],
    )
    return DecodeFigures.of(program, samples)


def test_disturbed_rounds_do_not_count(figures):
    assert (figures.weights, figures.caches, figures.bandwidth) == (BYTES, 0, 4e9)
    assert figures.fraction == pytest.approx(BYTES / 1e-3 / 4e9)
    assert figures.decode.tokens_per_second == pytest.approx(1e3)
    assert figures.decode.tokens == 16
    # The time of Python for a call is divided among the tokens that a call has in a round.
    assert figures.decode.seconds == pytest.approx(1e-3 + 1e-4 / 4)
    assert figures.prompt.tokens_per_second == pytest.approx(4 / 8e-3)
    plain = figures.as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["decode"]["limit"] == "memory bandwidth"


def test_the_report_shows_every_kind_and_what_limits(figures):
    assert (
        format_figures(figures)
        == """\
decode  1,000 tokens per second, 16 tokens after 4
prompt  500 tokens per second, 4 tokens
bytes   2.6 MB a token: 2.6 MB of weights, 0.0 MB of caches
memory  4.0 GB/s, read by the same threads (2 on average); decoding reaches 64% of it

                     nodes      time  share                          MB   GB/s  prompt
linear                   1   1.00 ms  97.6% ####################    2.6    2.6  100.0%
embed                    1      0 ns   0.0%                                       0.0%
select                   1      0 ns   0.0%                                       0.0%
argmax                   1      0 ns   0.0%                                       0.0%
waiting for threads             0 ns   0.0%                                       0.0%
Python between steps         25.0 us   2.4%                                       0.0%

Decoding is limited by memory bandwidth. Of 1.03 ms a token:
  640 us to read its bytes at that bandwidth, 360 us of arithmetic beyond it,
  0 ns waiting for threads, 25.0 us of Python between steps
Reading the prompt is limited by arithmetic. Of 2.00 ms a token:
  160 us to read its bytes at that bandwidth, 1.84 ms of arithmetic beyond it,
  0 ns waiting for threads, 0 ns of Python between steps"""
    )


def test_the_picture_has_a_bar_for_each_stage_of_each_kind(figures):
    axes = draw(figures, "model.gguf", MagicMock()).add_subplot()
    bars = [call.args[1] for call in axes.barh.call_args_list]
    assert [len(shares) for shares in bars] == [6, 6]
    assert [sum(shares) for shares in bars] == pytest.approx([100, 100])
    assert axes.set_yticks.call_args.args[1][0] == "linear"
    assert "64% of 4.0 GB/s" in axes.set_title.call_args.args[0]


@pytest.fixture
def kernel(stand_in):
    return stand_in(max_seq_length=32, max_num_batched_tokens=8, page_size=4)


def test_a_prompt_is_read_and_rounds_decode_after_it(kernel):
    samples, seen = Samples(), []
    prompt = random_prompt(kernel.program, 11, 18)
    measure(kernel, prompt, 18, samples, lambda done, size: seen.append((done, size)))
    assert [(each.tokens, each.context) for each in samples.prompt] == [(8, 8), (3, 11)]
    assert [each.tokens for each in samples.rounds] == [8, 8, 2]
    assert [each.context for each in samples.decode] == [20, 29, 32]
    assert all(each.seconds > 0 and each.bandwidth > 0 for each in samples.rounds)
    assert seen == [(0, 18), (8, 18), (16, 18)]
    assert kernel.requests == ()
    figures = DecodeFigures.of(kernel.program, samples)
    assert 0 < figures.fraction < 100
    nodes = node_times(kernel.program, samples.decode)
    assert [each["name"] for each in nodes] == [node.name for node in kernel.program.nodes]
    assert all(each["work"] >= 0 <= each["wait"] for each in nodes)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 4), "prompt_tokens must be a positive integer, got 0"),
        ((4, 0), "new_tokens must be a positive integer, got 0"),
        ((16, 15), "a prompt of 16 tokens and 18 new ones are more than max_seq_length"),
        # Its tokens alone would take 8 exabytes.
        ((2**60, 4), f"a prompt of {2**60} tokens is more than max_seq_length"),
    ],
)
def test_more_tokens_than_a_program_takes_are_an_error(counts, message):
    kernel = PersistentKernel(backend="python", max_seq_length=32)
    kernel.compile()
    with pytest.raises(ValueError, match=message):
        random_prompt(kernel.program, *counts)
