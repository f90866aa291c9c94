"""Streams of pieces: their text is the answer's, and leaving one frees its place."""

import asyncio
import gc
import threading

import numpy as np
import pytest

import tensor_ops_decode
from byte_models import save_model

PROMPTS = ["a", "Once upon a time", "12345678901234567890", "été"]
HOW = {"max_new_tokens": 20, "ignore_eos": True}


@pytest.fixture
def model(folder, backend):
    options = {"max_num_batched_requests": 2, "max_num_batched_tokens": 8, "page_size": 8}
    with tensor_ops_decode.load(folder, backend, **options) as model:
        yield model


def test_the_pieces_are_the_text_of_the_answer(model):
    for prompt in PROMPTS:
        (answer,) = model.generate(prompt, seed=3, temperature=1.2, **HOW)
        stream = model.stream(prompt, seed=3, temperature=1.2, **HOW)
        assert stream.completion is None
        pieces = list(stream)
        assert (stream.completion, "".join(pieces)) == (answer, answer.text)
        assert all(pieces)
        assert len(pieces) > 1
        assert list(stream) == []


def test_streams_of_one_thread_share_steps(model):
    expected = [answer.text for answer in model.generate(PROMPTS, **HOW)]
    streams = [model.stream(prompt, **HOW) for prompt in PROMPTS]
    texts = [""] * len(streams)
    for number, stream in reversed([*enumerate(streams)]):
        texts[number] = "".join(stream)
    assert texts == expected


def test_coroutines_take_pieces(model):
    async def text(prompt):
        async with model.stream(prompt, **HOW) as stream:
            pieces = [piece async for piece in stream]
        assert "".join(pieces) == stream.completion.text
        return stream.completion

    async def all_of_them():
        return await asyncio.gather(*map(text, PROMPTS * 5))

    assert asyncio.run(all_of_them()) == model.generate(PROMPTS, **HOW) * 5


def test_a_coroutine_that_is_cancelled_loses_no_piece(model):
    async def patient():
        stream, pieces = model.stream(PROMPTS[1], **HOW), []
        while True:
            try:
                pieces.append(await asyncio.wait_for(anext(stream), 0.0001))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return "".join(pieces)

    (answer,) = model.generate(PROMPTS[1], **HOW)
    assert asyncio.run(patient()) == answer.text


@pytest.mark.parametrize("how", ["close", "with", "del", "aclose"])
def test_leaving_a_stream_frees_its_place(model, how):
    (expected,) = model.generate("b", **HOW)
    # Of a prompt of several steps, or of a part of the answer.
    for prompt in ("a", "1234567890" * 2):
        for number in (0, 1, 3):
            streams = [model.stream(prompt, **HOW) for _ in range(2)]
            for stream in streams:
                for _ in range(number):
                    next(stream)
            if how == "close":
                for stream in streams:
                    stream.close()
                    assert list(stream) == []
                    assert stream.completion is None
            elif how == "with":
                for stream in streams:
                    with stream:
                        pass
            elif how == "aclose":
                for stream in streams:
                    asyncio.run(stream.aclose())
            else:
                del stream, streams
                gc.collect()
            if how != "del":
                assert model.kernel.requests == ()
            assert model.generate("b", **HOW) == [expected]
            assert model.kernel.requests == ()


def test_a_dropped_stream_leaves_room_for_all_that_needs_it(model, tmp_path):
    file = tmp_path / "prompt"

    def drop():
        for stream in [model.stream(prompt, stop="\0\0\0", **HOW) for prompt in PROMPTS[:2]]:
            next(stream)

    model.save_prompt(file, PROMPTS[2])
    for use in (
        lambda: model.logprobs(PROMPTS[1]),
        lambda: model.save_prompt(file, PROMPTS[2]),
        lambda: model.load_prompt(file),
    ):
        expected = use()
        drop()
        gc.collect()
        assert use() == expected
        assert model.kernel.requests == ()


def test_a_stream_of_a_closed_model_can_be_closed(model):
    streams = [model.stream(prompt, stop="\0\0\0", **HOW) for prompt in PROMPTS[:2]]
    for stream in streams:
        next(stream)
    model.close()
    streams[0].close()
    with streams[1], pytest.raises(ValueError, match="the kernel is closed"):
        list(streams[1])
    assert [list(stream) for stream in streams] == [[], []]


def test_closing_waits_for_a_step_and_not_for_a_piece(model, monkeypatch):
    stream = model.stream("1234567890" * 3, stop="\0", **HOW)  # a prompt of four steps
    run, closing, steps = model.kernel.run, threading.Thread(target=stream.close), []

    def run_and_be_closed(*arguments, **named):
        steps.append(arguments)
        if len(steps) == 1:
            closing.start()
            closing.join(0.2)
        return run(*arguments, **named)

    monkeypatch.setattr(model.kernel, "run", run_and_be_closed)
    assert list(stream) == []
    closing.join()
    assert len(steps) == 1
    assert model.kernel.requests == ()


def test_many_threads_leave_and_go_on(model):
    random = np.random.default_rng(1)
    jobs = [(PROMPTS[i % 4], int(random.integers(0, 12))) for i in range(24)]
    expected = {each: model.generate(each, **HOW)[0].text for each in PROMPTS}
    wrong = []

    def take(prompt, leave_after):
        text = ""
        with model.stream(prompt, **HOW) as stream:
            for number, piece in enumerate(stream):
                text += piece
                if number == leave_after:
                    break
        is_whole = stream.completion is not None
        if not expected[prompt].startswith(text) or (is_whole and text != expected[prompt]):
            wrong.append((prompt, text))

    threads = [threading.Thread(target=take, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert model.kernel.requests == ()


def test_several_answers_to_a_prompt_are_those_to_equal_prompts(model):
    how = {"temperature": 1.5, "seed": 5, **HOW}
    answers = model.generate(PROMPTS[:2], n=3, **how)
    assert answers == model.generate([PROMPTS[0]] * 3 + [PROMPTS[1]] * 3, **how)
    assert len({answer.tokens for answer in answers[:3]}) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n": 2}, TypeError, "stream() has no argument 'n'"),
        ({"stream": print}, TypeError, "stream() has no argument 'stream'"),
        ({"max_tokens": 3}, TypeError, "stream() has no argument 'max_tokens'"),
        ({"temperature": -1}, ValueError, "temperature must be a number 0 or larger"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be"),
    ],
)
def test_wrong_arguments_are_errors_of_the_call(model, arguments, error, words):
    with pytest.raises(error) as caught:
        model.stream("a", **arguments)
    assert words in str(caught.value)
    with pytest.raises(ValueError, match="n must be a positive integer, got 0"):
        model.generate("a", n=0)


def test_nothing_stays_in_the_kernel_after_an_interrupt(tmp_path, interrupt_everywhere):
    save_model(tmp_path)
    # With stop strings, the answers are looked at after each step, however long that takes.
    given = {"max_new_tokens": 2, "ignore_eos": True, "stop": "never"}
    limits = {"max_seq_length": 16, "max_num_pages": 4, "page_size": 4}
    functions = {
        *("TextStream.__next__", "TextStream._wait", "TextStream._advance"),
        *("RunningAnswers.advance", "RunningAnswers._step", "RunningAnswers._end"),
    }
    with tensor_ops_decode.load(tmp_path, "python", max_num_batched_requests=1, **limits) as model:

        def answer():
            with model.stream([1, 2, 3, 4, 5], **given) as stream:
                return "".join(stream)

        expected = answer()
        for _ in interrupt_everywhere(answer, functions):
            assert model.kernel.requests == ()
            assert model.kernel.has_room(16)
        assert answer() == expected
