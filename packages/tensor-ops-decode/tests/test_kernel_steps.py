"""Steps in a row of a kernel: the results of single calls, where they end, and who goes on."""

import threading
import time
from functools import partial

import numpy as np
import pytest

from tensor_ops_decode import CapacityError
from tensor_ops_decode.scheduling.step_times import StepTimes

PROMPTS = [1, 2, 3], [200], list(range(20, 57)), [5, 5]


@pytest.fixture
def make(stand_in):
    return partial(stand_in, max_seq_length=96, max_num_batched_requests=4, page_size=8)


@pytest.fixture
def make_counting(make, runner, wrap_executables):
    """Return a function that makes a kernel, and returns its executable too."""

    def make_counting(**arguments):
        made = wrap_executables(runner, Counting)
        return make(**arguments), made[-1]

    return make_counting


class Counting:
    """An executable that notes the steps of each of its calls, which take `seconds` of its clock.

    It is interrupted before or after its steps if `interrupt` says so.
    """

    def __init__(self, executable):
        self._executable, self.calls = executable, []
        self.now, self.seconds, self.interrupt = 0.0, 0.0, None

    def __getattr__(self, name):
        return getattr(self._executable, name)

    def run(self, *counts):
        self._interrupt("before")
        self._executable.run(*counts)
        self._interrupt("after")
        self._note(1)

    def run_steps(self, *given):
        self._interrupt("before")
        chosen = self._executable.run_steps(*given)
        self._interrupt("after")
        self._note(len(chosen))
        return chosen

    def _interrupt(self, place):
        if self.interrupt == place:
            raise KeyboardInterrupt

    def _note(self, num_steps):
        self.calls.append(num_steps)
        self.now += num_steps * self.seconds


def by_single_steps(kernel, *prompts, **settings):
    """The tokens and the last logits of requests, and why they ended."""
    requests = [kernel.add_request(prompt, **settings) for prompt in prompts]
    logits = {}
    while kernel.requests:
        logits |= {request: kernel.logits(request) for request in kernel()}
    return [(kernel.tokens(each), logits[each], kernel.finish_reason(each)) for each in requests]


@pytest.mark.parametrize("num_steps", [1, 2, 7, 100])
@pytest.mark.parametrize("pages", [None, 16])
def test_they_give_the_tokens_and_logits_of_single_steps(make, num_steps, pages):
    expected = by_single_steps(make(max_num_pages=pages), *PROMPTS, max_new_tokens=20)
    kernel = make(max_num_pages=pages)
    requests = [kernel.add_request(prompt, max_new_tokens=20) for prompt in PROMPTS]
    found, logits = {request: [] for request in requests}, {}
    while kernel.requests:
        for request, tokens in kernel.run(num_steps).items():
            found[request] += tokens
            logits[request] = kernel.logits(request)
    for request, (tokens, last, reason) in zip(requests, expected, strict=True):
        assert found[request] == kernel.tokens(request) == tokens
        np.testing.assert_array_equal(logits[request], last)
        assert kernel.finish_reason(request) == reason == "length"
        assert kernel.num_accepted(request) == 0


def test_an_end_token_of_one_ends_them_all_at_that_step(make, make_counting):
    prompts = PROMPTS[:2]
    free = [tokens for tokens, _, _ in by_single_steps(make(), *prompts, max_new_tokens=30)]
    step = next(
        i for i in range(5, 30) if free[1][i] not in free[0] and free[1][i] not in free[1][:i]
    )
    kernel, counting = make_counting(eos_token_id=free[1][step])
    first, second = (kernel.add_request(prompt, max_new_tokens=30) for prompt in prompts)
    assert kernel.run(100) == {first: free[0][: step + 1], second: free[1][: step + 1]}
    assert (kernel.finish_reason(first), kernel.finish_reason(second)) == (None, "stop")
    # The prompts, then the steps in as many calls as their time allows.
    assert (counting.calls[0], sum(counting.calls)) == (1, 1 + step)
    third = kernel.add_request(PROMPTS[3], max_new_tokens=3)
    while kernel.requests:
        kernel.run(100)
    assert kernel.tokens(first) == free[0]
    assert len(kernel.tokens(third)) == 3


def test_the_executor_goes_on_by_itself_where_nothing_has_to_be_done(make_counting):
    kernel, counting = make_counting(max_num_batched_tokens=16)
    kernel.add_request(PROMPTS[2], max_new_tokens=60)
    kernel.run(60)
    # The prompt takes three steps, and its first token comes alone.
    assert counting.calls[:3] == [1, 1, 1]
    assert sum(counting.calls) == 60
    assert len(counting.calls) < 30  # fewer on a machine that is not busy


@pytest.mark.parametrize("settings", [{"logprobs": 0}, {"logprobs": 2}])
def test_python_sees_each_step_of_requests_that_need_it(make_counting, settings):
    kernel, counting = make_counting()
    request = kernel.add_request([1, 2], max_new_tokens=5, **settings)
    assert kernel.run(100) == {request: kernel.tokens(request)}
    assert counting.calls == [1] * 5
    assert len(kernel.logprobs(request)) == 5


class Plain:
    """An executable that has what it must have, and nothing else."""

    def __init__(self, executable):
        self.arrays, self.run, self.close = executable.arrays, executable.run, executable.close


def test_an_executor_without_them_is_called_for_each_step(make, runner, wrap_executables):
    expected = [tokens for tokens, _, _ in by_single_steps(make(), *PROMPTS, max_new_tokens=9)]
    wrap_executables(runner, Plain)
    kernel = make()
    requests = [kernel.add_request(prompt, max_new_tokens=9) for prompt in PROMPTS]
    while kernel.requests:
        kernel.run(100)
    assert [kernel.tokens(request) for request in requests] == expected


def test_without_room_for_the_next_step_there_are_fewer_then_an_error(make):
    kernel = make(max_seq_length=12)
    first, second = kernel.add_request([1, 2, 3]), kernel.add_request([7])
    found = kernel.run(100)
    assert [len(found[each]) for each in (first, second)] == [10, 10]
    tokens = kernel.tokens(second)
    with pytest.raises(CapacityError, match="has come to max_seq_length, 12 tokens") as error:
        kernel.run(100)
    assert (error.value.request, kernel.tokens(second)) == (first, tokens)
    kernel.remove(first)
    kernel.run(2)
    alone = make(max_seq_length=12)
    request = alone.add_request([7], max_new_tokens=12)
    assert alone.run(12)[request] == kernel.tokens(second)


def test_pages_for_some_of_the_steps_are_enough_for_these(make):
    kernel = make(max_num_pages=5, page_size=4)
    first, second = kernel.add_request([1, 2, 3, 4, 5]), kernel.add_request([6, 7, 8, 9])
    found = kernel.run(100)
    # Three pages of the first hold its prompt and what it has fed; the second has the other two.
    assert [len(found[each]) for each in (first, second)] == [5, 5]
    with pytest.raises(CapacityError, match="needs another page of 4 tokens, and the 5 pages"):
        kernel.run(100)
    kernel.remove(second)
    kernel.run(4)
    alone = make()
    request = alone.add_request([1, 2, 3, 4, 5])
    assert alone.run(9)[request] == kernel.tokens(first)


def test_pages_that_were_held_for_steps_are_given_back(make):
    kernel = make(max_num_pages=12)
    for _ in range(3):
        request = kernel.add_request([1] * 20)
        kernel.run(30)
        kernel.remove(request)
    request = kernel.add_request([2] * 90, max_new_tokens=7)
    assert len(kernel.run(7)[request]) == 7


def test_max_seconds_ends_them_after_a_step_at_least(make):
    kernel = make()
    kernel.add_request([1])
    assert [len(tokens) for _ in range(3) for tokens in kernel.run(9, max_seconds=0).values()] == [
        1,
        1,
        1,
    ]


def test_rows_are_as_long_as_the_steps_before_leave_time_for(make_counting, monkeypatch):
    """How many steps one has is known before it, and none is meant to take more than 50 ms."""
    kernel, counting = make_counting(max_seq_length=500)
    monkeypatch.setattr(time, "perf_counter", lambda: counting.now)
    counting.seconds = 1 / 512
    kernel.add_request([1])
    kernel.run(40)
    assert counting.calls == [1, 25, 14]
    counting.calls.clear()
    kernel.run(10**9, max_seconds=10 / 512)
    assert counting.calls == [10]
    counting.seconds = 1 / 16  # slower from here on, which the next row shows
    kernel.run(1)
    counting.calls.clear()
    kernel.run(10**9, max_seconds=0.2)
    assert counting.calls == [1, 1, 1]
    counting.seconds = 1 / 8192
    counting.calls.clear()
    kernel.run(70)
    assert counting.calls == [1, 32, 32, 5]  # no pages for more steps are held


def test_rows_of_fewer_requests_need_no_step_that_shows_how_long_they_take(
    make_counting, monkeypatch
):
    kernel, counting = make_counting(max_seq_length=500)
    monkeypatch.setattr(time, "perf_counter", lambda: counting.now)
    counting.seconds = 0.001
    first, second = kernel.add_request([1]), kernel.add_request([2])
    kernel.run(20)
    kernel.remove(first)
    counting.calls.clear()
    kernel.run(20)
    kernel.add_request([3])
    kernel.add_request([4])
    kernel.run(20)
    assert counting.calls == [20, 1, 19]
    assert len(kernel.tokens(second)) == 60


def test_processes_that_note_the_same_run_as_many_steps():
    """The number of steps depends on the noted times alone, and on no clock within the row."""
    ranks = [StepTimes() for _ in range(3)]
    rows = []
    for seconds in (0.004, 0.2, 0.03, 0.0):
        rows.append([rank.steps_within(4, 0.03, most=32) for rank in ranks])
        for rank in ranks:
            rank.note(4, rows[-1][0], seconds)
    rows.append([rank.steps_within(4, 0.03, most=32) for rank in ranks])
    assert rows == [[1] * 3, [7] * 3, [1] * 3, [1] * 3, [32] * 3]


def test_the_default_request_runs_if_none_was_added(make):
    kernel = make()
    (tokens,) = kernel.run(5).values()
    other = make()
    assert tokens == [next(iter(other().values())) for _ in range(5)]


@pytest.mark.parametrize("given", [0, -1, 1.5, True, None])
def test_the_number_of_steps_is_a_positive_integer(make, given):
    with pytest.raises(ValueError, match="num_steps must be a positive integer, got"):
        make().run(given)


def test_without_active_requests_they_are_an_error(make):
    kernel = make()
    kernel.remove(kernel.add_request([1]))
    with pytest.raises(RuntimeError, match="no request is active"):
        kernel.run(3)


@pytest.mark.parametrize("place", ["before", "after"])
def test_interrupted_steps_are_taken_again(make, make_counting, place):
    other = make()
    kernel, counting = make_counting()
    request, expected = kernel.add_request([1, 2, 3]), other.add_request([1, 2, 3])
    kernel.run(2)
    counting.interrupt = place
    with pytest.raises(KeyboardInterrupt):
        kernel.run(20)
    counting.interrupt = None
    kernel.run(20)
    assert other.run(22)[expected] == kernel.tokens(request)


def test_threads_share_the_steps_and_may_add_requests(make):
    kernel = make(max_seq_length=2000)
    first = kernel.add_request([1, 2, 3])
    got = []

    def steps():
        while len(kernel.tokens(first)) < 1500:
            got.extend(kernel.run(50).get(first, []))

    threads = [threading.Thread(target=steps) for _ in range(2)]
    for thread in threads:
        thread.start()
    second = kernel.add_request([7], max_new_tokens=40)
    for thread in threads:
        thread.join(60)
    assert sorted(got) == sorted(kernel.tokens(first))
    (alone,) = by_single_steps(make(), [7], max_new_tokens=40)
    assert alone[0] == kernel.tokens(second)
