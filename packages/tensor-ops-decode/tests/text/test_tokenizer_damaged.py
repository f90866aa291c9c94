"""Tokenizers of Hugging Face that contradict themselves where the library does not look."""

import json

import pytest

from tensor_ops_decode.text import open_tokenizer
from tensor_ops_decode.weights import FileFormatError, open_weights

TOKENIZER = {
    "added_tokens": [],
    "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
}
# The library takes a template that names a token without saying which number it is.
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [],
    "special_tokens": {},
}


@pytest.fixture
def opened(tmp_path):
    def opened(**changed):
        (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER | changed))
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
        return open_tokenizer(open_weights(tmp_path))

    return opened


def test_a_template_with_a_token_of_no_number_is_refused(opened, tmp_path):
    with pytest.raises(FileFormatError, match="the tokenizer cannot be built") as caught:
        opened(post_processor=TEMPLATE)
    assert str(caught.value).startswith(f"{tmp_path}: ")


def test_a_text_that_needs_a_missing_unknown_token_is_a_value_error(opened):
    tokenizer = opened(model=TOKENIZER["model"] | {"unk_token": "<unk>"})
    assert tokenizer.encode("ab") == [0, 1]
    with pytest.raises(ValueError, match=r"cannot encode the text: .*<unk>"):
        tokenizer.encode("c")
