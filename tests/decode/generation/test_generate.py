"""Text from prompts: streams, stops, ends, several prompts at once, and what is refused."""

import pickle
import threading

import numpy as np
import pytest
import torch

import tensor_ops_decode
from byte_models import END, SPARE, save_model
from tensor_ops_decode.program import program

PROMPTS = ["a", "Once upon a time", "12345678901234567890", "été"]


@pytest.fixture
def model(folder, backend):
    options = {"max_num_batched_requests": 2, "max_num_batched_tokens": 8, "page_size": 8}
    with tensor_ops_decode.load(folder, backend, **options) as model:
        yield model


def test_a_program_is_checked_once_and_by_an_executor_in_python_that_reads_it(
    folder, backend, monkeypatch
):
    checked, check = [], program.check_program

    def noting(each, inferred=None):
        checked.append(each)
        check(each, inferred)

    monkeypatch.setattr(program, "check_program", noting)
    with tensor_ops_decode.load(folder, backend, max_seq_length=47) as model:
        assert checked == [model.kernel.program] * (2 if backend == "python" else 1)


def test_prompts_together_are_answered_as_alone(model):
    together = model.generate(PROMPTS, max_new_tokens=20, ignore_eos=True)
    assert together == [
        model.generate(prompt, max_new_tokens=20, ignore_eos=True)[0] for prompt in PROMPTS
    ]
    assert all(len(answer.tokens) == 20 for answer in together)


def test_tokens_and_text_are_the_same_prompt(model):
    tokens = model.tokenizer.encode(PROMPTS[1])
    (by_text,), (by_tokens,) = model.generate(PROMPTS[1]), model.generate(np.array(tokens))
    assert by_text == by_tokens
    assert by_text.prompt_tokens == tuple(tokens)


def test_pieces_of_a_stream_are_the_text(model):
    pieces = {number: [] for number in range(len(PROMPTS))}
    answers = model.generate(
        PROMPTS, max_new_tokens=40, stream=lambda number, text: pieces[number].append(text)
    )
    assert ["".join(pieces[number]) for number in pieces] == [answer.text for answer in answers]
    assert all(piece for each in pieces.values() for piece in each)


def test_an_end_token_ends_an_answer(model, folder):
    (longer,) = model.generate("a", max_new_tokens=30, ignore_eos=True)
    # Any token that it chooses will do for the end.
    place = next(i for i in range(3, 30) if longer.tokens[i] not in longer.tokens[:i])
    backend = model.kernel.explain().backend
    with tensor_ops_decode.load(folder, backend, eos_token_id=longer.tokens[place]) as other:
        (answer,) = other.generate("a", max_new_tokens=30)
    assert answer.tokens == longer.tokens[: place + 1]
    assert answer.finish_reason == "stop"
    assert answer.text == model.tokenizer.decode(longer.tokens[:place])


def test_a_stop_string_ends_an_answer_before_it(model):
    (longer,) = model.generate(PROMPTS[1], max_new_tokens=60, ignore_eos=True)
    stop = longer.text[10:13]
    pieces = []
    (answer,) = model.generate(
        PROMPTS[1],
        max_new_tokens=60,
        ignore_eos=True,
        stop=["never", stop],
        stream=lambda _, text: pieces.append(text),
    )
    assert answer.text == longer.text[: longer.text.index(stop)] == "".join(pieces)
    assert answer.finish_reason == "stop"
    assert answer.tokens == longer.tokens[: len(answer.tokens)]


def test_a_stop_string_may_have_the_name_of_a_special_token(model):
    settings = {"temperature": 3.0, "max_new_tokens": 40, "ignore_eos": True}
    answers = model.generate(["a"] * 40, **settings)
    seed = next(i for i, each in enumerate(answers) if SPARE in each.tokens[3:])
    tokens = answers[seed].tokens
    place = tokens.index(SPARE, 3)
    before = model.tokenizer.decode(tokens[:place])
    for stop, text in (("<spare>", before), (before[-1] + "<spare>", before[:-1])):
        (answer,) = model.generate("a", seed=seed, stop=["never", stop], **settings)
        assert (answer.tokens, answer.finish_reason) == (tokens[: place + 1], "stop")
        assert answer.text == text


def test_what_may_become_a_stop_string_is_released_in_the_end(model):
    (longer,) = model.generate(PROMPTS[1], max_new_tokens=20, ignore_eos=True)
    stop = longer.text[-2:] + "more"
    (answer,) = model.generate(PROMPTS[1], max_new_tokens=20, ignore_eos=True, stop=stop)
    assert answer == longer


def test_an_answer_ends_with_the_sequence(folder, backend):
    with tensor_ops_decode.load(folder, backend, max_seq_length=24) as model:
        (answer,) = model.generate(PROMPTS[1], max_new_tokens=100, ignore_eos=True)
    assert len(answer.tokens) == 24 - len(answer.prompt_tokens) + 1
    assert answer.finish_reason == "length"


def test_equal_seeds_give_equal_answers(model):
    def answer(seed, **given):
        settings = {"temperature": 2.0, "seed": seed, "max_new_tokens": 20, "ignore_eos": True}
        return model.generate("a", **settings | given)[0].tokens

    assert answer(1) == answer(1)
    assert answer(1) != answer(2)
    assert answer(3, top_k=1) == answer(3, temperature=0)
    # A prompt's seed goes by its place.
    settings = {"temperature": 2.0, "max_new_tokens": 20, "ignore_eos": True}
    assert [each.tokens for each in model.generate(["a", "a"], seed=1, **settings)] == [
        answer(1),
        answer(2),
    ]


def test_defaults_of_the_files_apply_where_they_are_given(tmp_path, backend):
    save_model(tmp_path)
    path = tmp_path / "generation_config.json"
    path.write_text('{"do_sample": true, "temperature": 2.0, "eos_token_id": [7]}', "utf-8")
    with tensor_ops_decode.load(tmp_path, backend) as model:
        assert model.defaults == {"temperature": 2.0, "top_k": 50}
        settings = {"max_new_tokens": 20, "ignore_eos": True}
        (by_file,) = model.generate("a", **model.defaults, **settings)
        assert by_file == model.generate("a", temperature=2.0, top_k=50, **settings)[0]
        assert by_file != model.generate("a", **settings)[0]
    path.write_text('{"do_sample": true, "top_p": -1}', "utf-8")
    message = r"generation_config\.json.*top_p"
    with tensor_ops_decode.load(tmp_path, backend) as model:
        with pytest.raises(tensor_ops_decode.FileFormatError, match=message):
            model.generate("a", **model.defaults)
        assert model.generate("a", **settings)[0].tokens


@pytest.mark.parametrize(
    ("prompt", "given", "words"),
    [
        ("", {}, "empty"),
        ([], {}, "empty"),
        ([END + 10], {}, "266"),
        ([-1], {}, "-1"),
        ("x" * 129, {}, "129"),
        ("x", {"max_new_tokens": 0}, "max_new_tokens"),
        ("x", {"max_new_tokens": None}, "max_new_tokens"),
        ("x", {"max_new_tokens": True}, "max_new_tokens"),
        ("x", {"temperature": 1e39}, "temperature"),
        ("x", {"seed": True}, "seed"),
        ("x", {"temperature": -1}, "temperature"),
        ("x", {"temperature": float("nan")}, "temperature"),
        ("x", {"top_p": 1.5}, "top_p"),
        ("x", {"min_p": -0.1}, "min_p"),
        ("x", {"top_k": -1}, "top_k"),
        ("x", {"stop": [""]}, "stop"),
        ("x", {"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_is_an_error_before_any_work(model, prompt, given, words):
    shown = []
    with pytest.raises(ValueError, match=words):
        model.generate(["fine", prompt], stream=lambda *piece: shown.append(piece), **given)
    assert not shown
    assert model.kernel.requests == ()


def test_an_error_names_the_prompt_among_several(model):
    with pytest.raises(ValueError, match=r"^prompt 1: the prompt is empty"):
        model.generate(["fine", "", "too"])
    with pytest.raises(ValueError, match=r"^the prompt is empty"):
        model.generate([""])


def test_an_interrupt_just_after_a_request_is_removed(model, monkeypatch):
    remove = model.kernel.remove

    def interrupted(number):
        monkeypatch.undo()
        remove(number)
        raise KeyboardInterrupt

    monkeypatch.setattr(model.kernel, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.generate(PROMPTS, max_new_tokens=2)
    assert model.kernel.requests == ()


def test_an_interrupt_leaves_the_model_usable(model):
    right = model.generate(PROMPTS, max_new_tokens=5)

    def interrupt(number, text):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.generate(PROMPTS, max_new_tokens=50, stream=interrupt)
    assert model.kernel.requests == ()
    assert model.generate(PROMPTS, max_new_tokens=5) == right


def test_a_chat_is_what_the_template_makes_of_it(model):
    tokens = model.chat_prompt([{"role": "user", "content": "hi"}])
    assert model.tokenizer.decode(tokens) == "<user>hi</><assistant>"


def test_a_model_without_chat_template_says_so(tmp_path, backend):
    save_model(tmp_path, template=None)
    model = tensor_ops_decode.load(tmp_path, backend)
    with model, pytest.raises(ValueError, match="no chat template"):
        model.chat_prompt([{"role": "user", "content": "hi"}])


def test_threads_have_the_answers_that_they_have_alone(model):
    lists = [PROMPTS[:2], PROMPTS[2:], [PROMPTS[0]] * 3]
    alone = [model.generate(prompts, max_new_tokens=20) for prompts in lists]
    found = [None] * len(lists)

    def run(number):
        found[number] = model.generate(lists[number], max_new_tokens=20)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(lists))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_a_stream_may_generate_too(model):
    right = model.generate(PROMPTS, max_new_tokens=6)
    inner = []
    outer = model.generate(
        PROMPTS,
        max_new_tokens=6,
        stream=lambda *_: inner.append(model.generate(PROMPTS[0], max_new_tokens=6)[0]),
    )
    assert outer == right
    assert set(inner) == {right[0]}


def test_requests_wait_for_pages_that_others_hold(folder, backend, model):
    right = model.generate(PROMPTS, max_new_tokens=20, ignore_eos=True)
    # Room for the longest of the four, not for two of them.
    options = {"max_num_pages": 5, "page_size": 8, "max_num_batched_requests": 4}
    with tensor_ops_decode.load(folder, backend, **options) as small:
        assert small.generate(PROMPTS, max_new_tokens=20, ignore_eos=True) == right
        # An answer ends where the pages do.
        (answer,) = small.generate(PROMPTS[0], max_new_tokens=100, ignore_eos=True)
        assert len(answer.tokens) == 5 * 8
        with pytest.raises(ValueError, match="41 tokens"):
            small.generate("x" * 41)


def test_numbers_of_numpy_are_numbers(model):
    plain = {"temperature": 0.5, "top_k": 7, "top_p": 0.75, "min_p": 0.125, "seed": 3}
    kinds = [np.float32, np.int32, np.float16, np.float64, np.uint64]
    numpy = {name: kind(plain[name]) for name, kind in zip(plain, kinds, strict=True)}
    right = model.generate("a", max_new_tokens=5, **plain)
    assert model.generate("a", max_new_tokens=np.int64(5), **numpy) == right


@pytest.mark.parametrize("of", [np.array, torch.tensor, tuple, iter])
def test_rows_of_tokens_are_prompts(model, of):
    rows = [[1], [3]]
    right = [model.generate(row, max_new_tokens=4)[0] for row in rows]
    assert model.generate(of(rows), max_new_tokens=4) == right
    assert model.generate(of(rows[0]), max_new_tokens=4) == right[:1]


@pytest.mark.parametrize(
    "prompts",
    [b"a", [b"a"], {"role": "user"}, {1, 2}, [True], [1.0], np.ones(2), ["a", 1], None, 3, [[[1]]]],
)
def test_what_is_no_prompt_is_an_error(model, prompts):
    with pytest.raises(TypeError, match="prompt"):
        model.generate(prompts)


def test_a_kernel_is_not_pickled(model):
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        pickle.dumps(model.kernel)
