"""Requests whose tokens the caller chooses, from their logits."""

import random
from functools import partial

import numpy as np
import pytest

from tensor_ops_decode import CapacityError

PROMPT = list(range(20, 31))
OTHER = [7, 8, 9]


@pytest.fixture
def make(stand_in):
    return partial(stand_in, max_seq_length=64, max_num_batched_requests=4)


def greedy(kernel, prompt, count):
    request = kernel.add_request(prompt, max_new_tokens=count)
    while kernel.requests:
        kernel()
    return kernel.tokens(request)


def test_greedy_choices_give_what_the_kernel_chooses(make):
    expected = greedy(make(), PROMPT, 6)
    kernel = make(max_num_batched_tokens=4, page_size=3)
    request = kernel.add_request(PROMPT, choose=False, max_new_tokens=6)
    while kernel.requests:
        if request in kernel.waiting:
            kernel.extend(request, [int(np.argmax(kernel.logits(request)))])
        else:
            assert kernel() == {}
    assert kernel.tokens(request) == expected
    assert kernel.finish_reason(request) == "length"


def test_several_tokens_are_fed_at_once_with_the_same_logits(make):
    kernel = make()
    one, several = (kernel.add_request(PROMPT, choose=False) for _ in range(2))
    kernel()
    kernel.extend(several, [5, 6, 7])
    for token in (5, 6, 7):
        kernel.extend(one, [token])
        kernel()
    np.testing.assert_array_equal(kernel.logits(one), kernel.logits(several))


def test_others_go_on_while_a_request_waits_and_its_logits_stay(make):
    expected = greedy(make(), OTHER, 9)
    kernel = make()
    waiting = kernel.add_request(PROMPT, choose=False)
    other = kernel.add_request(OTHER, max_new_tokens=9)
    kernel()
    logits = kernel.logits(waiting)
    kernel.run(3)
    assert kernel.waiting == (waiting,)
    np.testing.assert_array_equal(kernel.logits(waiting), logits)
    kernel.extend(waiting, [3])
    kernel.run(5)
    assert not np.array_equal(kernel.logits(waiting), logits)
    assert kernel.tokens(other) == expected


def test_steps_in_a_row_end_where_all_requests_wait(make):
    kernel = make(max_num_batched_tokens=4)
    requests = [kernel.add_request(each, choose=False) for each in (PROMPT, OTHER)]
    assert kernel.run(20) == {}
    assert kernel.waiting == tuple(requests)


@pytest.mark.parametrize("seed", range(4))
def test_requests_of_both_kinds_come_and_go(make, seed):
    draw = random.Random(seed)
    kernel = make(max_num_batched_tokens=6, page_size=4, max_num_batched_requests=3)
    alone, expected, given, left = make(), {}, set(), 12
    while left or expected:
        if left and kernel.has_room(30) and draw.random() < 0.7:
            left -= 1
            prompt = PROMPT[: draw.randrange(1, 12)] + OTHER[: draw.randrange(3)]
            choose, count = draw.random() < 0.5, draw.randrange(1, 8)
            request = kernel.add_request(prompt, choose=choose, max_new_tokens=count)
            expected[request] = greedy(alone, prompt, count)
            given |= set() if choose else {request}
        for request in kernel.waiting:
            if draw.random() < 0.7:
                kernel.extend(request, [int(np.argmax(kernel.logits(request)))])
        if {*kernel.requests} - {*kernel.waiting}:
            kernel.run(draw.randrange(1, 4))
        for request in {*expected} - {*kernel.requests}:
            assert kernel.tokens(request) == expected.pop(request)
            kernel.remove(request)
    assert given


def test_a_call_says_that_all_requests_wait(make):
    kernel = make()
    request = kernel.add_request([1], choose=False)
    kernel()
    with pytest.raises(RuntimeError, match=rf"extend\(\) those that wait for tokens, \[{request}"):
        kernel()


def test_end_tokens_of_a_request_replace_those_of_the_kernel(make):
    free = greedy(make(), [1, 2], 5)
    kernel = make(eos_token_id=free[0])
    length = free.index(free[3]) + 1
    request = kernel.add_request([1, 2], end_tokens=[free[3]], max_new_tokens=5)
    ignoring = kernel.add_request([1, 2], end_tokens=[free[3]], ignore_eos=True, max_new_tokens=5)
    without = kernel.add_request([1, 2], end_tokens=(), max_new_tokens=5)
    given = kernel.add_request([1, 2], end_tokens=[free[3]], choose=False)
    while set(kernel.requests) - {given}:
        kernel()
    assert (kernel.tokens(request), kernel.finish_reason(request)) == (free[:length], "stop")
    assert kernel.tokens(ignoring) == kernel.tokens(without) == free
    kernel.extend(given, [free[3]])
    assert kernel.finish_reason(given) == "stop"


def test_wrong_extensions_raise_and_change_nothing(make):
    kernel = make(max_seq_length=8)
    choosing = kernel.add_request([1])
    given = kernel.add_request([1, 2, 3], choose=False, max_new_tokens=4)
    long = kernel.add_request([1] * 7, choose=False)
    with pytest.raises(ValueError, match="has tokens that the kernel has yet to be called for"):
        kernel.extend(given, [1])
    kernel()
    with pytest.raises(ValueError, match="without choose=False, so that the kernel chooses"):
        kernel.extend(choosing, [1])
    with pytest.raises(ValueError, match="may have 4 more tokens, got 5"):
        kernel.extend(given, [1] * 5)
    with pytest.raises(ValueError, match="what is to follow is empty"):
        kernel.extend(given, [])
    with pytest.raises(ValueError, match="tokens must be from 0 to 255, got 256 in what is to"):
        kernel.extend(given, [256])
    with pytest.raises(ValueError, match="may have 2 more tokens, got 3"):
        kernel.extend(long, [1] * 3)
    assert kernel.tokens(given) == kernel.tokens(long) == []
    kernel.extend(given, [1] * 4)
    with pytest.raises(ValueError, match=r"has ended \(length\); it cannot be extended"):
        kernel.extend(given, [1])
    kernel.extend(long, [1, 1])
    with pytest.raises(CapacityError, match="has come to max_seq_length"):
        kernel()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"end_tokens": 5}, "end_tokens must be a sequence of token ids, got 5"),
        ({"end_tokens": ["a"]}, "end_tokens must be a sequence of token ids"),
        ({"choose": False, "temperature": 1.0}, "by logits.*leave out temperature"),
        ({"choose": False, "logprobs": 1}, "leave out logprobs"),
        ({"end_tokens": [256]}, "tokens must be from 0 to 255, got 256 in end_tokens"),
    ],
)
def test_wrong_settings_are_refused(make, settings, words):
    kernel = make()
    for add in (kernel.check_request, kernel.add_request):
        with pytest.raises((TypeError, ValueError), match=words):
            add([1], **settings)
    assert kernel.requests == ()
