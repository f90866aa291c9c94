"""Every key of transformers' configurations means the same here, or is refused by its name.

A key that transformers' class of a family does not read changes nothing.
"""

import dataclasses
import json

import numpy as np
import pytest

from family_logits import FAMILIES, classes_of, of_the_engine, of_transformers, save
from greedy_models import BOUND

# Keys of no effect on logits, by their names: what is trained, saved, or said to other programs.
OTHER = {
    "transformers_version", "architectures", "output_hidden_states", "return_dict", "dtype",
    "id2label", "label2id", "problem_type", "model_type", "name_or_path", "use_cache",
    "output_attentions", "auto_map", "attn_implementation", "experts_implementation",
}  # fmt: skip
# The files' tensors decide on these: another value contradicts them.
OF_TENSORS = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_size_per_layer_input", "vocab_size_per_layer_input",
    "attention_k_eq_v", "num_kv_shared_layers", "use_double_wide_mlp", "enable_moe_block",
    "moe_intermediate_size",
}  # fmt: skip
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [2.0] * 6}
SLOW = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROPES = [
    {"rope_type": "default", "rope_theta": 55.0, "partial_rotary_factor": 0.5},
    {"partial_rotary_factor": 0.5},
    {"rope_type": "linear", "factor": 3.0, "rope_theta": 55.0},
    {"rope_type": "linear", "factor": 3.0, "partial_rotary_factor": 0.5},
    {"rope_type": "llama3", "factor": 2.0, **SLOW, "original_max_position_embeddings": 64},
    {"rope_type": "llama3", "factor": 2.0, **SLOW},
    {"rope_type": "longrope", **LONG, "original_max_position_embeddings": 64},
    {"rope_type": "longrope", **LONG, "factor": 3.0, "attention_factor": 1.5},
    {"rope_type": "yarn", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 2.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": None, "truncate": False, "attention_factor": 1.5},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "proportional", "factor": 2.0},
]
NESTED = [
    {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 44.0}}
    for rope in ROPES
]
# What some classes read beside the rotations of the layers, or beside those of all.
BESIDE = [{**NESTED[9], "truncate": False}, {**ROPES[9], "llama_4_scaling_beta": 0.5}]
# Odd values of each key. Those of one family are tried with all: others must not read them.
VALUES = {
    "rope_parameters": [*ROPES, *NESTED[:4], *BESIDE, None],
    "rope_scaling": [*ROPES, {"type": "linear", "factor": 3.0}, None],
    "rope_theta": [77.0],
    "rope_local_base_freq": [33.0],
    "partial_rotary_factor": [0.5],
    "max_position_embeddings": [32],
    "original_max_position_embeddings": [16, 64],
    "sliding_window": [5, None],
    "sliding_window_pattern": [1, 2],
    "use_sliding_window": [True, False],
    "max_window_layers": [0, 2],
    "layer_types": [["full_attention"] * 3, ["sliding_attention", "full_attention"] * 2, None],
    "hidden_act": ["gelu", "relu", "silu", "gelu_pytorch_tanh"],
    "hidden_activation": ["gelu", "silu", "gelu_pytorch_tanh"],
    "query_pre_attn_scalar": [7],
    "attn_logit_softcapping": [2.0, 0.0, None],
    "final_logit_softcapping": [2.0, 0.0, None],
    "use_bidirectional_attention": [True, False, "vision"],
    "attention_bias": [True],
    "mlp_bias": [True],
    "tie_word_embeddings": [False],
    "rms_norm_eps": [0.5, 0.0],
    "layer_norm_eps": [0.5],
    "attention_dropout": [0.5],
    "resid_pdrop": [0.5],
    "embd_pdrop": [0.5],
    "initializer_range": [0.9],
    "pretraining_tp": [2],
    "pad_token_id": [3],
    "bos_token_id": [5],
    "eos_token_id": [5],
    "is_encoder_decoder": [False],
    "chunk_size_feed_forward": [2],
    "num_local_experts": [4],
    "num_experts": [4],
    "vision_config": [{"depth": 2}],
    "embedding_multiplier": [3.0],
    "logit_scale": [3.0],
    "logits_scaling": [3.0],
    "attention_multiplier": [3.0],
    "residual_multiplier": [3.0],
    "clip_qkv": [0.1],
    "no_rope_layers": [[0, 0, 0], [1, 0, 0, 1], [0, 1], None],
    "no_rope_layer_interval": [2, 0],
    "top_k_experts": [2],
    "global_head_dim": [12],
}
# Families that differ most in how they read them; the nightly run tries all.
SAMPLED = ("Llama", "Phi3", "Gemma3Text")
# transformers reads these, though its eager attention of the prompt does not show it.
REFUSED = {"rope_scaling", "rope_parameters", "use_bidirectional_attention"}


def sampled(families):
    """Mark families that only the nightly run tries: a family takes many models."""
    marks = {True: [], False: [pytest.mark.nightly]}
    return [pytest.param(name, marks=marks[name in SAMPLED]) for name in families]


@pytest.fixture(scope="module", params=sampled(FAMILIES))
def saved(request, tmp_path_factory):
    """The folder of a small model of a family, its settings and its logits after the prompt."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = save(request.param, folder)
    return folder, settings, of_transformers(folder)


def changed(settings, key, value):
    """Return settings with another value, and without those that would hide it."""
    hidden = {
        "rope_parameters": ("rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary"),
        "layer_types": ("sliding_window_pattern", "max_window_layers", "use_sliding_window"),
        "no_rope_layers": ("no_rope_layer_interval",),
    }
    gone = {name for name, keys in hidden.items() if key.startswith(keys)}
    return {name: each for name, each in settings.items() if name not in gone} | {key: value}


def disagreement(right, theirs, ours, key):
    """Say what is wrong with what the engine made of a key; None if nothing is."""
    if isinstance(ours, str):
        is_read = theirs is None or not np.array_equal(theirs, right) or key in REFUSED
        words = (
            ("rope type", "rope_theta", *LONG, *SLOW) if key.startswith("rope_") else ("lm_head",)
        )
        is_named = any(word in ours for word in (key, "partial_rotary_factor", *words))
        return None if is_read and is_named else f"refused: {ours}"
    # A file that transformers fails at means nothing that could be the same.
    if theirs is None or np.abs(theirs - ours).max() < BOUND:
        return None
    return f"logits differ by {np.abs(theirs - ours).max()}"


@pytest.mark.sampled(3, "saved")
def test_every_key_means_what_it_means_to_transformers(saved):
    folder, settings, right = saved
    assert np.abs(of_the_engine(folder) - right).max() < BOUND
    wrong = []
    for key, values in VALUES.items():
        for value in values:
            text = json.dumps(changed(settings, key, value))
            (folder / "config.json").write_text(text, encoding="utf-8")
            found = disagreement(right, of_transformers(folder), of_the_engine(folder), key)
            if found is not None:
                wrong.append(f"{key} {value}: {found}")
    assert wrong == []


@pytest.mark.parametrize("family", FAMILIES)
def test_no_key_of_a_configuration_is_left_out(family):
    config, _ = classes_of(family)
    keys = {field.name for field in dataclasses.fields(config) if not field.name.startswith("_")}
    assert keys - set(VALUES) - OTHER - OF_TENSORS == set()
