"""Settings without a value in config.json have the default of transformers' configuration class."""

import copy

import pytest
import transformers

from family_files import SIZES, Files
from tensor_ops_decode import FileFormatError
from tensor_ops_decode.models import FAMILIES, decoder_of

ARCHITECTURES = [family.hugging_face for family in FAMILIES]
# Odd values of what readers read, each of which is left out in turn. What a class does not read
# changes nothing with it or without it.
VALUES = SIZES | {
    "head_dim": 12,
    "max_position_embeddings": 777,
    "rms_norm_eps": 1e-3,
    "query_pre_attn_scalar": 7,
    "sliding_window": 9,
    "use_sliding_window": True,
    "max_window_layers": 3,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
    "sliding_window_pattern": 2,
    "no_rope_layers": [1, 0, 0, 1, 0, 1, 1, 0],
    "no_rope_layer_interval": 3,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.3,
    "logits_scaling": 4.0,
    "global_head_dim": 20,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 1,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 24,
}
# These are read too, though no configuration has them after that.
NOT_KEPT = {"sliding_window_pattern", "global_head_dim", "num_global_key_value_heads"}
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [2.0] * 6}
SLOW = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 2.0}
ROTATIONS = {
    "as by default": {},
    "other bases": {"rope_theta": 55.0, "rope_local_base_freq": 44.0},
    "part": {"partial_rotary_factor": 0.5},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0}},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 3.0}, "rope_theta": 55.0},
    "yarn as before": {"rope_scaling": {"type": "yarn", "factor": 3.0, "truncate": False}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 3.0}},
    "llama3": {"rope_scaling": {"rope_type": "llama3", **SLOW}},
    "longrope": {"rope_parameters": {"rope_type": "longrope", **LONG}},
    "longrope of a length": {
        "rope_scaling": {"type": "longrope", **LONG, "original_max_position_embeddings": 64},
    },
    "longrope of the model's length": {
        "rope_parameters": {"rope_type": "longrope", **LONG},
        "original_max_position_embeddings": 64,
    },
    "both names": {
        "rope_parameters": {"full_attention": {"rope_theta": 66.0}, "factor": 2.0},
        "rope_scaling": {"rope_type": "linear", "factor": 3.0},
    },
}


def config_of(architecture, settings):
    """Return all settings of a configuration with these; None if transformers refuses it."""
    kind = getattr(transformers, architecture).config_class
    try:
        return kind(**copy.deepcopy(settings)).to_dict() | {"architectures": [architecture]}
    except Exception:  # of many kinds
        return None


def made_of(settings):
    """Return what the engine makes of settings, or its error."""
    try:
        return decoder_of(Files(settings))
    except FileFormatError as error:
        return str(error)


@pytest.mark.sampled(2, "architecture", "rotation")
@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_left_out_is_the_default_of_the_class(architecture, rotation):
    known = set(config_of(architecture, {})) | NOT_KEPT
    full = {name: value for name, value in VALUES.items() if name in known} | ROTATIONS[rotation]
    compared = 0
    for left_out in (None, *full):
        some = {name: value for name, value in full.items() if name != left_out}
        written = config_of(architecture, some)
        if written is not None:
            compared += 1
            found = made_of(some | {"architectures": [architecture]})
            assert found == made_of(written), left_out
    assert compared or rotation in ("linear", "llama3")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_configuration_without_any_setting_is_that_of_the_class(architecture):
    # DeepSeek V2's class has no number of experts for a token.
    given = {"num_experts_per_tok": 2} if architecture.startswith("DeepseekV2") else {}
    found = decoder_of(Files(given | {"architectures": [architecture]}))
    assert found == decoder_of(Files(config_of(architecture, given)))
