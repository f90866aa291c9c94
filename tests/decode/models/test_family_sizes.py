"""Sizes that others do not divide: the logits of transformers, or an error that names the key."""

import copy

import numpy as np
import pytest
import torch
import transformers

from family_files import Files
from greedy_models import BOUND
from tensor_ops_decode import ArrayWeights, FileFormatError, PersistentKernel
from tensor_ops_decode.models import decoder_of

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 7,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 31,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
WINDOW = {"head_dim": 6, "sliding_window": 3}
FAMILIES = {
    "Llama": {},
    "Mistral": {"sliding_window": 3},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "Qwen3": {"head_dim": 6},
    "Phi3": {"sliding_window": 3},
    "Gemma": {"head_dim": 6},
    "Gemma2": WINDOW,
    "Gemma3Text": WINDOW,
    "SmolLM3": {"no_rope_layer_interval": 2},
    "Granite": {"residual_multiplier": 0.5},
    "Olmo2": {},
    "Olmo3": {"sliding_window": 3},
    "Ministral3": {"head_dim": 6},
}
HEADS = [(1, 1), (3, 1), (5, 5), (6, 2), (7, 7), (3, 2), (4, 3), (2, 4)]
OTHERS = [
    {"hidden_size": 23},
    {"hidden_size": 26},
    {"hidden_size": 25, "head_dim": 6},
    {"head_dim": 5},
    {"head_dim": 2, "intermediate_size": 1},
    {"sliding_window": 1, "sliding_window_pattern": 3, "max_window_layers": 7},
    {"sliding_window_pattern": 1, "max_window_layers": 0, "num_hidden_layers": 3},
]
CASES = [{"num_attention_heads": q, "num_key_value_heads": kv} for q, kv in HEADS] + OTHERS
PROMPT = np.arange(7) * 5 % 31
# transformers only asks for this; what it would be otherwise, the tensors' shapes show.
NOT_ASKED = "is not a multiple of the number of attention heads"


def of_transformers(family, settings):
    """Return the weights of a model and its logits after the prompt.

    Where transformers refuses such a model, the latter are its error.
    """
    model_class = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
    torch.manual_seed(0)
    try:
        config = getattr(transformers, f"{family}Config")(**copy.deepcopy(settings))
        model = model_class._from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.from_numpy(PROMPT)[None]).logits[0, -1].numpy()
    except Exception as error:  # of many kinds
        return {}, str(error)
    return {name: each.numpy() for name, each in model.state_dict().items()}, logits


def of_the_engine(settings, tensors, backend):
    weights = ArrayWeights(settings, tensors)
    limits = {"max_seq_length": 16, "max_num_batched_requests": 1, "cache_dtype": "float32"}
    with PersistentKernel(backend=backend, model=weights, **limits) as kernel:
        kernel.compile()
        request = kernel.add_request(PROMPT.tolist(), max_new_tokens=1)
        kernel()
        return np.array(kernel.logits(request))


def check(family, case, backend):
    """Compare a model of some sizes; return whether there is one."""
    settings = SIZES | FAMILIES[family] | case
    tensors, right = of_transformers(family, settings)
    settings["architectures"] = [f"{family.removesuffix('Text')}ForCausalLM"]
    if not isinstance(right, str):
        found = of_the_engine(settings, tensors, backend)
        assert np.abs(found - right).max() < BOUND, case
    elif NOT_ASKED not in right:
        with pytest.raises(FileFormatError) as caught:
            decoder_of(Files(settings))
        words = [*case, "num_key_value_heads", "head_dim", "partial_rotary_factor"]
        assert str(caught.value).startswith(Files.config), case
        assert any(word in str(caught.value) for word in words), case
    return not isinstance(right, str)


@pytest.mark.parametrize("family", FAMILIES)
def test_odd_sizes_mean_what_they_mean_to_transformers(family):
    assert sum([check(family, case, "python") for case in CASES]) > 5


@pytest.mark.parametrize("head_size", [2, 3, 5, 8, 9])
def test_any_part_of_a_head_rotates_as_in_transformers(backend, head_size):
    parts = (0.01, 0.2, 0.35, 0.5, 0.6, 0.85, 0.99, 1.0)
    of_heads = [{"hidden_size": 4 * head_size, "partial_rotary_factor": part} for part in parts]
    compared = [check("Phi3", case, backend) for case in of_heads]
    # A head of odd size has no pair for its last element.
    assert compared == [head_size % 2 == 0 or part < 1 for part in parts]


def test_longrope_has_no_factors_for_an_odd_size():
    of_five = {"partial_rotary_factor": 0.85, "rope_type": "longrope"}
    for count in (2, 3):
        factors = {name: [1.0] * count for name in ("short_factor", "long_factor")}
        assert not check("Phi3", {"rope_parameters": of_five | factors}, "python")
