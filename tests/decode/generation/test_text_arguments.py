"""Arguments that are text: errors that name the argument, and models without a tokenizer."""

import json

import pytest

import tensor_ops_decode
from byte_models import SPARE, save_model
from tensor_ops.__main__ import main
from tensor_ops_decode.weights import FileFormatError

USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def model(folder, backend):
    with tensor_ops_decode.load(folder, backend) as model:
        yield model


@pytest.mark.parametrize("stop", [5, b"x", None, ["a", 5], {"a": "b"}, 1.5], ids=repr)
def test_stops_that_are_no_strings_are_a_type_error(model, stop):
    with pytest.raises(TypeError, match="stop must be a string or a sequence of strings, got"):
        model.generate("a", stop=stop)


def test_a_lone_surrogate_is_a_value_error_that_names_its_place(model):
    expected = r"{} has a lone surrogate, U\+DC80, at character {}"
    for prompts, name in (("ab\udc80", "prompt 0"), (["x", "ab\udc80"], "prompt 1")):
        with pytest.raises(ValueError, match=expected.format(name, 2)):
            model.generate(prompts)
    for stop, name in (("\udc80", "stop"), (["x", "\udc80"], r"stop\[1\]")):
        with pytest.raises(ValueError, match=expected.format(name, 0)):
            model.generate("x", stop=stop)
    messages = [*USER, {"role": "user", "content": [{"type": "text", "text": "a\udc80"}]}]
    name = r"messages\[1\]\['content'\]\[0\]\['text'\]"
    for call in (model.chat, model.chat_prompt):
        with pytest.raises(ValueError, match=expected.format(name, 1)):
            call(messages)
    with pytest.raises(ValueError, match=expected.format(r"tools\[0\]", 0)):
        model.chat_prompt(USER, tools=["\udc80"])
    with pytest.raises(ValueError, match=expected.format(r"a key of messages\[0\]", 0)):
        model.chat_prompt([{**USER[0], "\udc80": ""}])
    assert not model.kernel.requests


@pytest.mark.parametrize("words", [["\udc80"], ["x", "--stop=\udc80"], ["--chat", "\udc80"]])
def test_commands_name_the_place_too(folder, words, capsys):
    assert main(["generate", str(folder), "--backend=python", *words]) == 1
    err = capsys.readouterr().err
    assert "has a lone surrogate, U+DC80, at character 0" in err
    assert err.count("\n") == 1


def test_a_token_without_a_row_of_the_embedding_is_an_error_where_it_is_used(tmp_path, backend):
    template = "{{ messages[0].content }}{% if mark %}<spare>{% endif %}"
    save_model(tmp_path, vocabulary=SPARE, template=template)
    expected = f"token {SPARE}, '<spare>', is one of the tokenizer's 258, but the embedding has"
    with tensor_ops_decode.load(tmp_path, backend, max_num_batched_requests=2) as model:
        assert model.tokenizer.encode("<spare>", parse_special_tokens=True) == [SPARE]
        assert model.generate("a<spare>", max_new_tokens=2)[0].tokens
        assert model.chat(USER, max_new_tokens=2).tokens
        for call in (
            lambda: model.generate([97, SPARE]),
            lambda: model.chat(USER, template_variables={"mark": True}),
        ):
            with pytest.raises(ValueError, match=f"^{expected} only {SPARE} rows"):
                call()
        with pytest.raises(ValueError, match=f"^prompt 1: {expected}"):
            model.generate(["a", [SPARE]])
        assert not model.kernel.requests


@pytest.fixture
def tokens_only(tmp_path):
    """A folder with a model but without a tokenizer."""
    save_model(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    return tmp_path


def test_a_folder_without_a_tokenizer_runs_prompts_of_tokens(tokens_only, folder, backend):
    prompt = [*b"Once"]
    with tensor_ops_decode.load(folder, backend) as model:
        expected = model.generate(prompt, max_new_tokens=5, ignore_eos=True)
    with tensor_ops_decode.load(tokens_only, backend) as model:
        (answer,) = model.generate(prompt, max_new_tokens=5, ignore_eos=True)
        assert answer.tokens == expected[0].tokens
        assert (answer.text, answer.finish_reason) == ("", "length")
        for call in (
            lambda: model.generate("Once"),
            lambda: model.generate(prompt, stop="x"),
            lambda: model.generate(prompt, stream=print),
            lambda: model.chat(USER),
            lambda: model.chat_prompt(USER),
            lambda: model.tokenizer.encode("x"),
            lambda: model.tokenizer.decode([1]),
        ):
            with pytest.raises(FileFormatError, match=r"tokenizer\.json is missing: .* tokens"):
                call()


def test_commands_without_a_tokenizer_say_what_is_missing(tokens_only, tmp_path, capsys):
    for words in (["Once"], ["--chat"], ["--chat", "hi"]):
        assert main(["generate", str(tokens_only), "--backend=python", *words]) == 1
        err = capsys.readouterr().err
        assert f"{tokens_only / 'tokenizer.json'} is missing" in err
        assert err.count("\n") == 1
    exported = tmp_path / "exported"
    assert main(["export", str(tokens_only), str(exported), "--backend=python"]) == 0
    assert json.loads((exported / "model.json").read_text())["format"] == "tensor-ops model"
