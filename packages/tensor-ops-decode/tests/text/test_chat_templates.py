"""The chat templates of a model by name: what transformers finds and chooses, and the errors."""

import itertools

import pytest

pytest.importorskip("gguf")
pytest.importorskip("jinja2")
transformers = pytest.importorskip("transformers")

from tokenizer_files import write_folder, write_gguf  # noqa: E402

from tensor_ops_decode.text import open_chat_templates, open_tokenizer  # noqa: E402
from tensor_ops_decode.text.chat_template import ChatTemplateError  # noqa: E402
from tensor_ops_decode.weights import FileFormatError  # noqa: E402

IN_CONFIG = [
    None,
    "config",
    [{"name": "default", "template": "default of config"}],
    [{"name": "default", "template": "config"}, {"name": "tool_use", "template": "config tools"}],
    [{"name": "tool_use", "template": "config tools"}, {"name": "rag", "template": "config rag"}],
    {"default": "object", "rag": "object rag"},
    [],
]
IN_FILES = [
    {},
    {"chat_template.jinja": "file é"},
    {"additional_chat_templates/tool_use.jinja": "file tools"},
    {"chat_template.jinja": "file", "additional_chat_templates/tool_use.jinja": "file tools"},
    {"chat_template.jinja": "file", "additional_chat_templates/default.jinja": "file of the name"},
    {"additional_chat_templates/rag.v2.jinja": "file rag", "additional_chat_templates/a.txt": "x"},
    {"chat_template.json": '{"chat_template": "of a processor"}'},
]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CHOSEN = [
    None,
    "default",
    "tool_use",
    "rag",
    "rag.v2",
    "{{ 'own' }}",
    "{% if true %}own{% endif %}",
]


def opened(weights):
    return open_chat_templates(weights, open_tokenizer(weights))


@pytest.mark.parametrize("in_config", IN_CONFIG, ids=range(len(IN_CONFIG)))
@pytest.mark.parametrize("in_files", IN_FILES, ids=range(len(IN_FILES)))
def test_templates_are_those_that_transformers_finds_and_chooses(tmp_path, in_config, in_files):
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": in_config}
    folder = write_folder(tmp_path, files={"tokenizer_config.json": config}, texts=in_files)
    ours, theirs = opened(folder), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for name, tools in itertools.product(CHOSEN, (None, [], TOOLS)):
        has_tools = tools is not None
        try:
            expected = theirs.get_chat_template(name, tools)
        except ValueError:
            expected = None
        # A value that is neither a name nor a template is no template here.
        if expected is None or (expected == name and "{" not in name):
            if (name, ours.sources.keys()) != ("default", {"default"}):
                with pytest.raises(ValueError, match="the model has no chat template"):
                    ours.chosen(name, has_tools=has_tools)
        else:
            assert ours.chosen(name, has_tools=has_tools).source == expected


def test_a_gguf_file_has_templates_by_the_keys_that_its_library_writes(tmp_path, monkeypatch):
    file = write_gguf(tmp_path / "a.gguf", bos_token_id=256)
    keys = {"": "{{ bos_token }}1", ".tool_use": "2", ".rag_v2": "3", "s": ["tool_use", "rag_v2"]}
    keys = {f"tokenizer.chat_template{key}": value for key, value in keys.items()}
    monkeypatch.setattr(file, "metadata", {**file.metadata, **keys})
    templates = opened(file)
    assert templates.chosen().render([]) == "he1"
    assert templates.chosen(has_tools=True).render([]) == "2"
    assert templates.chosen("rag_v2", has_tools=True).render([]) == "3"
    del file.metadata["tokenizer.chat_template"]
    with pytest.raises(ValueError, match="of the name 'default'; choose one of 'rag_v2', 'tool_us"):
        opened(file).chosen()


def test_errors_say_which_names_there_are_and_how_to_choose(tmp_path):
    rag = [{"name": "rag", "template": "1"}, {"name": "a", "template": "2"}]
    folder = write_folder(tmp_path, files={"tokenizer_config.json": {"chat_template": rag}})
    expected = "no chat template of the name '{}'; choose one of 'a', 'rag' by chat_template="
    for name in (None, "defualt"):
        with pytest.raises(ValueError, match=expected.format(name or "default")) as raised:
            opened(folder).chosen(name)
        assert str(raised.value).startswith(f"{tmp_path}: ")
        assert "--chat-template in the shell" in str(raised.value)
    for name in (7, ["rag"], b"rag"):
        with pytest.raises(TypeError, match="chat_template must be the name of a template, or its"):
            opened(folder).chosen(name)
    (tmp_path / "tokenizer_config.json").unlink()
    for name, given in [(None, ""), ("foo", "; got the name 'foo'"), ("default", "; got the name")]:
        with pytest.raises(ValueError, match=f"the model has no chat template{given}") as raised:
            opened(folder).chosen(name)
        assert "--chat-template in the shell" in str(raised.value)
        assert ("got the name" in str(raised.value)) == bool(given)
    assert opened(folder).chosen("{{ 7 * 7 }}").render([]) == "49"


def test_only_the_template_that_is_chosen_must_be_one(tmp_path):
    both = [{"name": "default", "template": "1"}, {"name": "rag", "template": "{% for %}"}]
    folder = write_folder(tmp_path, files={"tokenizer_config.json": {"chat_template": both}})
    assert opened(folder).chosen().render([]) == "1"
    with pytest.raises(ChatTemplateError, match="the chat template is not valid"):
        opened(folder).chosen("rag")


def test_a_file_of_a_template_that_is_not_utf_8_is_named(tmp_path):
    folder = write_folder(tmp_path, texts={"additional_chat_templates/rag.jinja": "1"})
    for name in ("chat_template.jinja", "additional_chat_templates/rag.jinja"):
        (tmp_path / name).write_bytes(b"\xff")
        with pytest.raises(FileFormatError, match=rf"{name}: .*expected UTF-8 text"):
            opened(folder)
        (tmp_path / name).write_bytes(b"1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (7, "expected a text as the chat template 'default', got 7"),
        ({"rag": None}, "expected a text as the chat template 'rag', got None"),
        ([{"name": "rag"}], "expected a text as the chat template 'rag', got None"),
        (["rag"], r"tokenizer_config\.json: expected objects with a name and a template"),
        ([{"template": "1"}], r"tokenizer_config\.json: expected objects with a name and a temp"),
        ([{"name": ["a"], "template": "1"}], "expected objects with a name and a template"),
    ],
)
def test_what_is_no_template_is_refused(tmp_path, given, expected):
    folder = write_folder(tmp_path, files={"tokenizer_config.json": {"chat_template": given}})
    with pytest.raises(FileFormatError, match=expected) as raised:
        opened(folder)
    assert str(raised.value).startswith(str(tmp_path))
