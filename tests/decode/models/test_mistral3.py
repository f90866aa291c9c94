"""Folders of Mistral 3, of text and images: their text is run, by the logits of transformers."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Mistral3Config, Mistral3ForConditionalGeneration

from family_files import Files
from family_logits import FAMILIES, PROMPT, SIZES, of_the_engine
from greedy_models import BOUND
from small_families import PAD, YARN
from tensor_ops_decode import FileFormatError
from tensor_ops_decode.models import decoder_of

VISION = {
    "model_type": "pixtral",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
TEXTS = {
    "mistral": {"head_dim": 12, "sliding_window": 9},
    "ministral3": FAMILIES["Ministral3"] | {
        "rope_parameters": {**YARN, "llama_4_scaling_beta": 0.4}
        | {"original_max_position_embeddings": 8}
    },
}  # fmt: skip


@pytest.fixture(params=TEXTS)
def saved(request, tmp_path):
    """The folder of a small model, its tensors, and the logits of a text."""
    torch.manual_seed(0)
    text = SIZES | PAD | TEXTS[request.param] | {"model_type": request.param}
    is_tied = request.param == "mistral"
    config = Mistral3Config(
        text_config=text, vision_config=VISION, tie_word_embeddings=is_tied, image_token_index=330
    )
    model = Mistral3ForConditionalGeneration._from_config(config, attn_implementation="eager")
    model.eval().save_pretrained(tmp_path)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0, -1].numpy()
    return tmp_path, load_file(tmp_path / "model.safetensors"), logits


@pytest.mark.parametrize(
    ("before", "head"),
    [("model.language_model.", "lm_head"), ("language_model.model.", "language_model.lm_head")],
)
def test_the_text_is_run_under_either_name(saved, before, head):
    folder, tensors, right = saved
    assert np.abs(of_the_engine(folder) - right).max() < BOUND
    names = {"model.language_model.": before, "language_model.model.": before}
    heads = {"lm_head.weight": f"{head}.weight", "language_model.lm_head.weight": f"{head}.weight"}

    def renamed(name):
        old = next((each for each in names if name.startswith(each)), None)
        return heads.get(name, name if old is None else before + name.removeprefix(old))

    found = {renamed(name): tensor for name, tensor in tensors.items()}
    assert any(name.startswith(before) for name in found)
    save_file(found, folder / "model.safetensors", {"format": "pt"})
    assert np.abs(of_the_engine(folder) - right).max() < BOUND


def test_a_text_of_another_kind_is_named():
    settings = {"architectures": ["Mistral3ForConditionalGeneration"]}
    for kind in ("mistral4", None, ["mistral"]):
        text = SIZES | {"model_type": kind}
        with pytest.raises(FileFormatError, match=r"model_type of text_config is .*mistral"):
            decoder_of(Files(settings | {"text_config": text}))


def test_layers_are_counted_before_anything_is_made_for_each(saved):
    folder, _, _ = saved
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["num_hidden_layers"] = 10**9
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "num_hidden_layers is 1000000000, but there are only" in of_the_engine(folder)
