"""`Model.chat_prompt` and `Model.chat`: what of transformers' arguments they take, and refuse."""

import inspect
import json

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase, ProcessorMixin

import tensor_ops_decode
from byte_models import TEMPLATE, save_model
from tensor_ops.__main__ import main
from tensor_ops_decode.generation.model import REFUSED

USER = [{"role": "user", "content": "hi"}]
SAID = [*USER, {"role": "assistant", "content": "so "}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
TAKEN = {
    "tools": TOOLS,
    "documents": [{"title": "t", "text": "x"}],
    "chat_template": "other",
    "add_generation_prompt": False,
    "continue_final_message": True,
}
SHOWS = "{{ messages | length }}{{ tools | tojson }}{{ documents | tojson }}" + TEMPLATE
NAMED = {
    "default": SHOWS,
    "tool_use": "T{{ tools | length }}" + TEMPLATE,
    "other": "O{{ mood }}" + TEMPLATE,
}


@pytest.fixture(scope="module")
def named_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, template=[{"name": k, "template": v} for k, v in NAMED.items()])
    return folder


@pytest.fixture(scope="module")
def model(named_folder):
    with tensor_ops_decode.load(named_folder, "python") as model:
        yield model


@pytest.fixture(scope="module")
def theirs(named_folder):
    return AutoTokenizer.from_pretrained(named_folder)


def test_each_argument_of_transformers_is_taken_or_refused(model):
    for owner in (PreTrainedTokenizerBase, ProcessorMixin):
        parameters = inspect.signature(owner.apply_chat_template).parameters.values()
        names = {each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}
        assert names <= {"self", *TAKEN, *REFUSED}
    for name in REFUSED:
        for value in (None, False, True, 7):
            for call in (
                lambda given: model.chat_prompt(USER, **given),
                lambda given: model.chat(USER, template_variables=given),
                lambda given: model.chat(USER, **given),
            ):
                with pytest.raises(TypeError, match=f"{name} is not taken: "):
                    call({name: value})


@pytest.mark.parametrize("messages", [USER, SAID], ids=["user", "assistant"])
def test_what_is_taken_means_what_it_means_in_transformers(model, theirs, messages):
    for chosen in range(1 << len(TAKEN)):
        given = {name: TAKEN[name] for bit, name in enumerate(TAKEN) if chosen >> bit & 1}
        default = {"add_generation_prompt": not given.get("continue_final_message")}
        expected = theirs.apply_chat_template(messages, **{**default, **given})["input_ids"]
        assert model.chat_prompt(messages, **given) == expected, given


def test_an_answer_continues_the_final_message(model, theirs):
    expected = theirs.apply_chat_template(SAID, continue_final_message=True)["input_ids"]
    answer = model.chat(SAID, continue_final_message=True, max_new_tokens=3, ignore_eos=True)
    assert list(answer.prompt_tokens) == expected
    assert bytes(expected).endswith(b"<assistant>so ")
    assert (answer,) == tuple(model.generate([expected], max_new_tokens=3, ignore_eos=True))


def test_an_answer_is_by_the_template_that_is_chosen(model):
    for given, expected in (
        ({"chat_template": "other", "template_variables": {"mood": "!"}}, b"O!<user>hi</>"),
        ({"template_variables": {"tools": TOOLS}}, b"T1<user>hi</>"),
        ({"chat_template": "{{ messages[0].role }}"}, b"user"),
    ):
        answer = model.chat(USER, max_new_tokens=1, **given)
        assert bytes(answer.prompt_tokens).startswith(expected)


def test_the_template_that_is_chosen_writes_the_text_of_the_prompt(model):
    for name, tools in ((None, None), (None, TOOLS), ("other", None)):
        template = model.chat_template(name, has_tools=tools is not None)
        prompt = model.chat_prompt(USER, chat_template=name, tools=tools)
        assert template.render(USER, tools=tools).encode() == bytes(prompt)
    with pytest.raises(ValueError, match="'none'"):
        model.chat_template("none")


def test_what_chat_is_given_in_the_wrong_place_says_where_it_belongs(model):
    for name in ("tools", "documents", "add_generation_prompt"):
        with pytest.raises(TypeError, match=f"{name} is not taken: give it in template_variables"):
            model.chat(USER, **{name: TAKEN[name]})
    for name in ("chat_template", "continue_final_message", "parse_special_tokens"):
        with pytest.raises(TypeError, match=f"{name} is not taken: give it as an argument"):
            model.chat(USER, template_variables={name: True})


def test_two_ends_of_a_prompt_are_an_error(model):
    with pytest.raises(ValueError, match="give one of the two"):
        model.chat_prompt(SAID, continue_final_message=True, add_generation_prompt=True)
    for value in (7, None, ["content"]):
        with pytest.raises(TypeError, match="continue_final_message must be a bool, or the key of"):
            model.chat_prompt(SAID, continue_final_message=value)


def test_the_command_takes_the_name_of_a_template(named_folder, capsys):
    words = ["generate", str(named_folder), "--backend=python", "--max-new-tokens=1", "--json"]
    for given, prompt in (([], SHOWS), (["--chat-template", "other"], NAMED["other"])):
        assert main([*words, *given, "--chat", "hi"]) == 0
        length = json.loads(capsys.readouterr().out)["prompt_tokens"]
        assert length == len(prompt_of(prompt))
    assert main([*words, "--chat", "hi", "--chat-template", "none"]) == 1
    assert "choose one of 'default', 'other', 'tool_use'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "hi", "--chat-template", "other"])
    assert "--chat-template needs --chat" in capsys.readouterr().err


def prompt_of(source):
    template = tensor_ops_decode.text.ChatTemplate(source)
    return template.render(USER).encode()
