"""Requests of a kernel: several at once, prompts in pieces, ends, limits, pages and errors."""

from functools import partial

import numpy as np
import pytest

from tensor_ops_decode import CapacityError
from tensor_ops_decode.scheduling.kv_cache import PageTable

PROMPTS = [1, 2, 3], [200], list(range(20, 57)), [5, 5]


@pytest.fixture
def make(stand_in):
    return partial(stand_in, max_seq_length=64, max_num_batched_requests=4)


def run(kernel, *prompts, **settings):
    requests = [kernel.add_request(prompt, **settings) for prompt in prompts]
    while kernel.requests:
        kernel()
    return [kernel.tokens(request) for request in requests]


def test_a_request_has_the_same_tokens_alone_and_beside_others_whatever_the_pieces(make):
    alone = [run(make(), prompt, max_new_tokens=6)[0] for prompt in PROMPTS]
    assert run(make(), *PROMPTS, max_new_tokens=6) == alone
    assert run(make(max_num_batched_tokens=4, page_size=3), *PROMPTS, max_new_tokens=6) == alone


def test_a_long_prompt_does_not_hold_up_the_others(make):
    kernel = make(max_num_batched_tokens=5)
    short = kernel.add_request([1])
    kernel()
    long = kernel.add_request(list(range(10)))
    assert [set(kernel()) for _ in range(3)] == [{short}, {short}, {short, long}]


def test_the_chosen_token_is_the_next_input_and_its_logits_are_there(make):
    kernel = make()
    first = kernel.add_request([1, 2, 3])
    second = kernel.add_request([9])
    chosen = kernel()
    assert chosen == {request: np.argmax(kernel.logits(request)) for request in (first, second)}
    assert kernel.logits(first).dtype == np.float32
    again = make()
    prompt = [1, 2, 3, chosen[first]]
    request = again.add_request(prompt)
    assert again()[request] == kernel()[first]
    np.testing.assert_array_equal(again.logits(request), kernel.logits(first))


def test_logits_are_those_of_the_last_step(make):
    kernel = make(max_num_batched_tokens=4)
    request = kernel.add_request([1] * 6)
    kernel()
    with pytest.raises(ValueError, match=f"request {request} has got no token in the last step"):
        kernel.logits(request)
    kernel()
    before = kernel.logits(request)
    kernel()
    assert not np.array_equal(before, kernel.logits(request))


def test_requests_join_and_leave_between_steps(make):
    kernel = make(max_num_batched_requests=2)
    first = kernel.add_request([1, 2], max_new_tokens=2)
    second = kernel.add_request([3])
    kernel()
    assert not kernel.has_room(1)
    kernel.check_request([4])
    with pytest.raises(ValueError, match="2 requests are active, which is max_num_batched_reque"):
        kernel.add_request([4])
    kernel()
    assert kernel.requests == (second,)
    assert (kernel.finish_reason(first), kernel.finish_reason(second)) == ("length", None)
    third = kernel.add_request([4])
    kernel.remove(second)
    assert set(kernel()) == {third}
    assert len(kernel.tokens(first)) == 2
    assert run(make(), [4], max_new_tokens=1) == [kernel.tokens(third)]


def test_a_request_ends_at_an_end_token_unless_that_is_ignored(make):
    (free,) = run(make(), [1, 2], max_new_tokens=5)
    end = free[2]
    length = free.index(end) + 1
    kernel = make(eos_token_id=[255, end])
    request = kernel.add_request([1, 2])
    while kernel.requests:
        kernel()
    assert (kernel.tokens(request), kernel.finish_reason(request)) == (free[:length], "stop")
    assert run(kernel, [1, 2], max_new_tokens=5, ignore_eos=True) == [free]
    assert run(make(eos_token_id=end), [1, 2]) == [free[:length]]


def test_the_default_request_has_one_token_and_no_end(make):
    kernel = make(eos_token_id=list(range(256)))
    for _ in range(3):
        (chosen,) = kernel().values()
    assert kernel.tokens(0)[-1] == chosen
    assert len(kernel.tokens(0)) == 3


def test_a_call_without_an_active_request_is_an_error(make):
    kernel = make()
    request = kernel.add_request([1])
    kernel.remove(request)
    with pytest.raises(RuntimeError, match=r"no request is active: add one with add_request\(\)"):
        kernel()


def test_reset_forgets_everything(make):
    kernel = make(max_num_pages=4)
    request = kernel.add_request([1] * 64)
    kernel()
    kernel.reset()
    assert kernel.requests == ()
    with pytest.raises(ValueError, match=f"there is no request {request}; there are none"):
        kernel.tokens(request)
    assert len(kernel()) == 1  # the default request


def test_a_step_past_the_longest_sequence_raises_before_it(make):
    kernel = make(max_seq_length=5)
    request = kernel.add_request([1, 2, 3])
    other = kernel.add_request([1])
    for _ in range(3):
        kernel()
    before = kernel.tokens(other)
    with pytest.raises(CapacityError, match="has come to max_seq_length, 5 tokens; remove") as e:
        kernel()
    assert e.value.request == request
    assert kernel.tokens(other) == before
    kernel.remove(request)
    kernel()
    assert run(make(max_seq_length=5), [1], max_new_tokens=4) == [kernel.tokens(other)]


def test_a_step_that_needs_more_pages_raises_and_goes_on_once_there_are(make):
    kernel = make(max_num_pages=3, page_size=4)
    first = kernel.add_request([1, 2, 3, 4, 5])
    second = kernel.add_request([6, 7, 8, 9])
    kernel()
    with pytest.raises(CapacityError, match="needs another page of 4 tokens, and the 3 pages") as e:
        kernel()
    assert e.value.request == second
    kernel.remove(first)
    for _ in range(5):
        kernel()
    assert run(make(), [6, 7, 8, 9], max_new_tokens=6) == [kernel.tokens(second)]


def test_pages_are_given_back(make):
    kernel = make(max_num_pages=4)
    expected = run(make(), [1] * 50, max_new_tokens=3)
    for _ in range(5):
        assert run(kernel, [1] * 50, max_new_tokens=3) == expected


@pytest.mark.parametrize(
    ("tokens", "settings", "error", "words"),
    [
        ([], {}, ValueError, "the prompt is empty"),
        ([1, 256], {}, ValueError, "tokens must be from 0 to 255, got 256"),
        ([-1], {}, ValueError, "tokens must be from 0 to 255, got -1"),
        ("hello", {}, TypeError, "must be a sequence of token ids, got 'hello'"),
        ([1.5], {}, TypeError, "must be a sequence of token ids"),
        ([[1]], {}, TypeError, "must be a sequence of token ids"),
        ([1] * 65, {}, ValueError, "a prompt of 65 tokens is more than .* room for, 64"),
        ([1] * 60, {"max_new_tokens": 6}, ValueError, "60 tokens and 6 new ones are more than"),
        ([1], {"max_new_tokens": 0}, ValueError, "max_new_tokens must be a positive integer"),
        ([1], {"top_p": 2}, ValueError, "top_p must be a number larger than 0, up to 1, got 2"),
        ([1], {"temperature": -1.0}, ValueError, "temperature must be a number 0 or larger"),
        ([1], {"seed": 2**64}, ValueError, "seed must be an integer from 0 to"),
        ([1], {"top_q": 2}, TypeError, "top_q"),
    ],
)
def test_wrong_requests_raise_and_leave_no_trace(make, tokens, settings, error, words):
    kernel = make()
    for add in (kernel.check_request, kernel.add_request):
        with pytest.raises(error, match=words):
            add(tokens, **settings)
    assert kernel.requests == ()


def test_a_prompt_may_fill_the_whole_sequence(make):
    (tokens,) = run(make(), [1] * 60, max_new_tokens=5)
    assert len(tokens) == 5


def test_pages_go_to_whom_they_are_counted_for():
    table = np.full((3, 4), -1, np.int32)
    pages = PageTable(table, 6, 10)
    pages.hold({0: 31, 2: 5})
    assert (table[0].tolist(), table[2, 0], pages.num_free) == ([0, 1, 2, 3], 4, 1)
    assert pages.first_without({1: 10}) is None
    assert pages.first_without({1: 10, 2: 11}) == 2
    pages.release(0)
    pages.hold({1: 21, 2: 11})
    assert len({*table[1, :3].tolist(), *table[2, :2].tolist()}) == 5
