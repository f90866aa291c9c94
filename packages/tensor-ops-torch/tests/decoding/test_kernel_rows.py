"""The rows of a batch in a kernel: their room, guesses, and errors."""

import pytest
import torch
from small_decoders import (
    NEW,
    PROMPTS,
    Stream,
    free_tokens,
    noting_decoder,
    padded,
    small_model,
)

from tensor_ops_decode import LogitsError


def test_rows_that_there_is_no_room_for_wait_for_others(make, model):
    small = make(max_num_batched_requests=2, max_num_pages=3)
    how = {"max_new_tokens": NEW, "eos_token_id": free_tokens(model)[0][2]}
    assert torch.equal(small.generate(**padded(), **how), model.generate(**padded(), **how))
    for more, words in (
        ({"streamer": Stream()}, "3 rows go on in step .* more than max_num_batched_requests, 2"),
        ({"suppress_tokens": [1]}, "3 rows go on in step .* more than max_num_batched_requests, 2"),
        ({"max_time": 60.0}, "3 rows go on in step .* more than max_num_batched_requests, 2"),
    ):
        with pytest.raises(ValueError, match=words):
            small.generate(**padded(), **how, **more)
    with pytest.raises(ValueError, match="2 rows of up to 25 tokens need 4 pages of 16 where"):
        small.generate(PROMPTS[:2], max_new_tokens=20, suppress_tokens=[1])
    assert small.kernel.requests == ()


def test_guesses_change_nothing(make, model):
    guessing = make(num_speculative_tokens=3)
    how = {"max_new_tokens": 30, "eos_token_id": None}
    expected = model.generate(**padded(), **how)
    for more in ({}, {"renormalize_logits": True}, {"streamer": Stream()}):
        assert torch.equal(guessing.generate(**padded(), **how, **more), expected)


def test_too_long_an_answer_is_an_error_before_any_step(decoder):
    for more in ({}, {"suppress_tokens": [1]}):
        with pytest.raises(ValueError, match="a prompt of 2 tokens and 200 new ones are more than"):
            decoder.generate([[1, 2]], max_new_tokens=200, **more)
    assert decoder.kernel.requests == ()


def test_an_error_in_the_callers_code_leaves_no_request(decoder):
    def fail(*args):
        raise ZeroDivisionError

    for more in ({"logits_processor": [fail]}, {"stopping_criteria": [fail]}):
        with pytest.raises(ZeroDivisionError):
            decoder.generate(PROMPTS, max_new_tokens=4, **more)
        assert decoder.kernel.requests == ()


def test_requests_that_someone_added_by_hand_are_an_error_where_there_is_no_room(make):
    small = make(max_num_batched_requests=1)
    request = small.kernel.add_request([1], max_new_tokens=50)
    for more in ({}, {"suppress_tokens": [1]}):
        with pytest.raises(RuntimeError, match=rf"no room beside its active requests, \[{request}"):
            small.generate([[1, 2]], max_new_tokens=3, **more)
    assert small.kernel.requests == (request,)


def test_logits_that_are_nan_are_an_error_that_names_the_row():
    broken = small_model()
    with torch.no_grad():
        broken.model.embed_tokens.weight[97] = torch.nan
    decoder = noting_decoder(broken)
    for more in ({}, {"suppress_tokens": [1]}):
        with pytest.raises(LogitsError, match="NaN") as raised:
            decoder.generate(PROMPTS, max_new_tokens=4, **more)
        assert raised.value.__notes__ == ["It is row 1 of the batch."]
        assert decoder.kernel.requests == ()
    decoder.close()


def test_ctrl_c_leaves_no_request(make, interrupt_everywhere):
    small = make(max_num_batched_requests=2)
    names = {
        *("KernelSampledRows._advance", "Rows.__exit__", "Rows.close", "Rows.add", "Rows.end"),
        *("Session.add_request", "Session.remove", "Requests.add", "Requests.remove"),
    }
    for more in ({}, {"suppress_tokens": [1]}):

        def generate(more=more):
            small.generate(PROMPTS[:2], max_new_tokens=1, **more)

        for _ in interrupt_everywhere(generate, names):
            assert small.kernel.requests == ()
