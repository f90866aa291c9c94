"""Files of models that contradict themselves are errors that name the file and what is wrong."""

import json

import pytest
from safetensors.torch import load_file, save_file

import tensor_ops_decode
from byte_models import save_model

NORM = "model.layers.1.self_attn.q_norm.weight"
Q = "model.layers.0.self_attn.q_proj.weight"
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 4.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [-1.0] * 8,
    "original_max_position_embeddings": 32,
}
PART = {"factor": 2.0, "partial_rotary_factor": 1.5}
PHI3 = {"architectures": ["Phi3ForCausalLM"]}
UNKNOWN = {"architectures": ["DbrxForCausalLM"]}
QWEN = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True}


@pytest.fixture
def refused(tmp_path):
    """Return a function that opens a model after a change, and its error."""
    save_model(tmp_path)

    def error(settings=None, tensors=None):
        config = tmp_path / "config.json"
        content = json.loads(config.read_text(encoding="utf-8")) | (settings or {})
        config.write_text(json.dumps(content), encoding="utf-8")
        if tensors is not None:
            path = tmp_path / "model.safetensors"
            save_file(tensors(load_file(path)), path)
        with pytest.raises(tensor_ops_decode.FileFormatError) as caught:
            tensor_ops_decode.load(tmp_path, "python")
        assert str(tmp_path) in str(caught.value)
        return str(caught.value)

    return error


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads must be a positive integer, got 0"),
        (
            {"num_attention_heads": 3, "head_dim": None},
            "21 of the 21 elements of a head rotate, in",
        ),
        ({"num_key_value_heads": -2}, "num_key_value_heads must be a positive integer, got -2"),
        ({"num_key_value_heads": 4}, "k_proj.weight' has shape (32, 64), expected (64, 64)"),
        ({"head_dim": 2**31 - 1}, "rotate, in pairs; expected an even number up to 65536"),
        ({"hidden_size": "64"}, "hidden_size must be a positive integer, got '64'"),
        ({"num_hidden_layers": 10**9}, "is 1000000000, but there are only 21 tensors"),
        ({"num_hidden_layers": 3}, "'model.layers.2.input_layernorm.weight', shape (64,), is"),
        ({"num_hidden_layers": 1}, "but the model has only 1 layers"),
        ({"vocab_size": 100}, "has shape (260, 64), expected (100, 64)"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a positive number, got nan"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported"),
        ({"architectures": ["GPT2LMHeadModel"]}, "unknown architecture 'GPT2LMHeadModel'"),
        ({"architectures": [["LlamaForCausalLM"]]}, "unknown architecture ['LlamaForCausalLM']"),
        (
            UNKNOWN | {"num_local_experts": 8},
            "num_local_experts is 8; of mixtures of experts only Mixtral, Qwen 2 MoE",
        ),
        ({"quantization_config": {"quant_method": "quark"}}, "by 'quark' are not supported"),
        (
            UNKNOWN | {"vision_config": {"depth": 2}},
            "vision_config; models of more than text are not",
        ),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": -1}, "got -1"),
        (QWEN | {"layer_types": ["full_attention"]}, "layer_types must be a list of 2 types"),
        (QWEN | {"layer_types": ["full_attention", "ssm"]}, "layer_types has 'ssm'; supported are"),
        (QWEN, "tensor 'model.layers.0.self_attn.q_proj.bias', shape (64,), is missing"),
        ({"rope_parameters": "yarn"}, "rope_parameters must be an object, got 'yarn'"),
        ({"rope_parameters": {"rope_type": "axial"}}, "the rope type 'axial' is not supported"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "factor is missing"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "factor is missing"),
        ({"rope_parameters": {"rope_type": "linear", **PART}}, "must be 1 in this family of"),
        (PHI3 | {"rope_parameters": PART}, "partial_rotary_factor must be at most 1, got 1.5"),
        ({"rope_parameters": LONGROPE | {"short_factor": [1.0]}}, "must be a list of 8 numbers"),
        ({"rope_parameters": LONGROPE}, "long_factor[0] must be a positive number, got -1"),
        ({"rope_parameters": LLAMA3}, "high_freq_factor must be larger than low_freq_factor, 4.0"),
    ],
)
def test_settings(refused, settings, words):
    assert words in refused(settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: found.pop(Q), f"tensor '{Q}', shape (64, 64), is missing"),
        (lambda found: found.update({Q: found[Q][:10].clone()}), "has shape (10, 64), expected"),
        (lambda found: found.update({Q: found[Q].double()}), "is of type F64"),
        (lambda found: found.update({NORM: found[Q][0].clone()}), f"'{NORM}' has no place in"),
        (
            lambda found: found.pop("lm_head.weight"),
            "'lm_head.weight', shape (260, 64), is missing",
        ),
    ],
)
def test_tensors(refused, change, words):
    def changed(found):
        change(found)
        return found

    assert words in refused(tensors=changed)
