"""The special tokens that templates know by name: those of transformers, whatever file has them."""

import inspect

import pytest

pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from tokenizer_files import write_folder, write_gguf  # noqa: E402
from tokenizers import decoders, models  # noqa: E402

from tensor_ops_decode.text import open_tokenizer  # noqa: E402
from tensor_ops_decode.text.special_tokens_map import (  # noqa: E402
    CLASS_DEFAULTS,
    special_token_names,
    special_token_names_of_gguf,
)


def added(content, *, typed=True, **flags):
    """Return an added token as files have it."""
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, **flags}
    return {"content": content, **flags} | ({"__type": "AddedToken"} if typed else {})


PLAIN = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": None, "add_bos_token": True}
DECODER = {"added_tokens_decoder": {"400": {**added("<x>", typed=False), "special": True}}}
CONFIGS = [
    {},
    PLAIN,
    {name: added(f"<{name}>") for name in ("bos_token", "eos_token", "unk_token", "mask_token")},
    {f"{name}_token": f"[{name}]" for name in ("sep", "cls", "mask", "unk", "pad")},
    {**PLAIN, "tool_token": "<tool>", "image_token": "<image>", "max_token": 7, "x": "y"},
    {**PLAIN, "tool_token": added("<typed tool>")},
    {**PLAIN, "extra_special_tokens": {"image_token": "<i>", "boi": "<boi>", "eos_token": "</i>"}},
    {**PLAIN, "extra_special_tokens": {"image_token": added("<added i>")}, "tool_token": "<t>"},
    {**PLAIN, "extra_special_tokens": ["<a>", "<b>"], "additional_special_tokens": {"boi": "<c>"}},
    {**PLAIN, "extra_special_tokens": [], "additional_special_tokens": {"boi": "<c>"}},
    {**PLAIN, "additional_special_tokens": ["<a>", added("<b>")]},
    {**PLAIN, "model_specific_special_tokens": {"boi": "<boi>"}},
    {**PLAIN, "model_specific_special_tokens": {"boi": "<boi>"}, "tool_token": "<tool>"},
]
MAPS = [
    None,
    {"bos_token": "<map s>", "eos_token": added("</map s>", typed=False), "sep_token": "<sep>"},
    {"tool_token": "<map tool>", "image_token": added("<map image>", typed=False)},
    {"extra_special_tokens": {"boi": "<map boi>"}, "unk_token": "<unk>"},
    {"additional_special_tokens": ["<a>"], "extra_special_tokens": ["<b>"], "pad_token": "<pad>"},
]


def assert_equal(folder, config, special_map, model=None, *, sentence_piece=False):
    folder.mkdir()
    files = {"tokenizer_config.json": config, "config.json": model or {}}
    if special_map is not None:
        files["special_tokens_map.json"] = special_map
    write_folder(folder, files=files)
    if sentence_piece:
        tokenizer = tokenizers.Tokenizer(models.BPE({"<unk>": 0}, []))
        tokenizer.decoder = decoders.Metaspace()
        tokenizer.save(str(folder / "tokenizer.json"))
    theirs = transformers.AutoTokenizer.from_pretrained(folder).special_tokens_map
    assert special_token_names(folder) == theirs, (config, special_map, model)


@pytest.mark.parametrize("special_map", MAPS, ids=range(len(MAPS)))
def test_names_are_those_of_transformers(tmp_path, special_map):
    for number, given in enumerate(CONFIGS):
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **given}
        assert_equal(tmp_path / f"{number}", config, special_map)
        assert_equal(tmp_path / f"{number} added", {**config, **DECODER}, special_map)


MODEL_TYPES = [None, "llama", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"]
CLASSES = [None, *CLASS_DEFAULTS, "LlamaTokenizerFast", "PreTrainedTokenizerFast", "Unheard"]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_what_no_file_names_is_as_in_the_class_that_transformers_takes(tmp_path, model_type):
    model = {} if model_type is None else {"model_type": model_type}
    for name in CLASSES:
        config = {"eos_token": None} if name is None else {"tokenizer_class": name}
        config |= {"pad_token": "<end>"}
        assert_equal(tmp_path / f"{name}", config, None, model)
        assert_equal(tmp_path / f"{name} _", config, None, model, sentence_piece=True)
    assert_equal(tmp_path / "none", {}, None, model | {"tokenizer_class": "GPT2Tokenizer"})


def test_the_defaults_of_classes_are_those_of_transformers():
    for name, defaults in CLASS_DEFAULTS.items():
        parameters = inspect.signature(getattr(transformers, name)).parameters.values()
        named = {each.name: each.default for each in parameters if each.name.endswith("_token")}
        assert {key: value for key, value in named.items() if value is not None} == defaults


def test_a_gguf_file_has_names_by_the_tokens_that_it_numbers(tmp_path):
    keys = {
        "bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding",
        "cls": "cls", "mask": "mask",
    }  # fmt: skip
    numbers = {f"{key}_token_id": number for number, key in enumerate(keys.values(), 256)}
    file = write_gguf(tmp_path / "a.gguf", **numbers)
    names = ["he", "ll", "hell", "hello", "Ġhello", "12", "123"]
    expected = {f"{key}_token": name for key, name in zip(keys, names, strict=True)}
    assert special_token_names_of_gguf(file, open_tokenizer(file)) == expected
