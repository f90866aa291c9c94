"""Folders of Qwen 3.5 for text and images, and what does not fit in its settings."""

import json

import pytest
from safetensors.torch import load_file, save_file

from greedy_models import assert_same, expected, greedy, open_kernel
from small_families import small_model
from tensor_ops_decode import FileFormatError

PROMPTS = [[3, 200, 17], list(range(40, 57))]


@pytest.fixture
def folder(tmp_path):
    """The text of a model of more than text, and the model of the text alone."""
    model = small_model("Qwen 3.5 of odd sizes")
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    named = {
        name.replace("model.", "model.language_model.", 1): each for name, each in tensors.items()
    }
    named["model.visual.patch_embed.weight"] = tensors["model.norm.weight"].clone()
    save_file(named, tmp_path / "model.safetensors", {"format": "pt"})
    text = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    write_config(tmp_path, text)
    return tmp_path, text, model


def write_config(folder, text):
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"depth": 2},
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_the_text_of_a_model_with_images_is_run(folder, backend):
    path, _, model = folder
    right = [expected(model, prompt, 16) for prompt in PROMPTS]
    with open_kernel(path, backend=backend) as kernel:
        kernel.compile()
        assert_same(greedy(kernel, PROMPTS, 16), right)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"linear_num_key_heads": 2}, "3 value heads of linear attention are no multiple of its 2"),
        ({"linear_conv_kernel_dim": 1}, "a convolution must be of two tokens or more"),
        ({"layer_types": ["linear_attention"]}, "layer_types must be a list of 3 types, each of"),
        ({"layer_types": ["ssm"] * 3}, "linear_attention or full_attention, got ['ssm', 'ssm',"),
        ({"attention_bias": True}, "attention_bias is True; only False is supported"),
        ({"linear_key_head_dim": 8}, "in_proj_qkv.weight' has shape (81, 48), expected (87, 48)"),
        ({"layer_types": None}, "'model.language_model.layers.2.linear_attn.in_proj_qkv.weight'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(folder, change, words):
    path, text, _ = folder
    write_config(path, text | change)
    with pytest.raises(FileFormatError) as caught:
        open_kernel(path, backend="python")
    assert words in str(caught.value)
