"""Small models of each family in a folder, and their logits by transformers and by the engine."""

import json

import numpy as np
import torch
import transformers

import tensor_ops_decode
from greedy_models import SMALL_MODEL
from small_families import PAD

SIZES = {**SMALL_MODEL, "num_hidden_layers": 3, "rms_norm_eps": 1e-3, "initializer_range": 0.3}
WINDOW = {"head_dim": 12, "sliding_window": 9}
FAMILIES = {
    "Llama": {"head_dim": 12},
    "Mistral": WINDOW,
    "Qwen2": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "Qwen3": {"head_dim": 12},
    "Phi3": PAD | {"sliding_window": 9},
    "Gemma": {"head_dim": 12},
    "Gemma2": WINDOW | {"query_pre_attn_scalar": 20},
    "Gemma3Text": WINDOW | {"query_pre_attn_scalar": 20},
    "Gemma4Text": {
        **WINDOW,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "global_head_dim": 20,
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 331,
        "hidden_size_per_layer_input": 10,
    },
    "SmolLM3": PAD | {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 9},
    "Granite": {
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.3,
        "logits_scaling": 0.5,
    },
    "Olmo2": PAD,
    "Olmo3": PAD | {"sliding_window": 9},
    "Ministral3": PAD | WINDOW,
}
PROMPT = np.random.default_rng(7).integers(0, 331, 20).tolist()


def classes_of(family):
    config = getattr(transformers, f"{family}Config")
    return config, getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")


def save(family, folder):
    """Save a small model of a family, and return its settings."""
    config, model_class = classes_of(family)
    torch.manual_seed(0)
    model = model_class(config(**SIZES, **FAMILIES[family]))
    for name, parameter in model.named_parameters():
        if name.endswith(("norm.weight", "bias")):  # which begin as all ones or zeros
            parameter.data.add_(torch.randn_like(parameter), alpha=0.2)
    model.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


@torch.no_grad()
def of_transformers(folder):
    """Return the logits after the prompt; None where transformers cannot run the model."""
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
        if found["missing_keys"]:  # it takes random numbers instead
            return None
        return model.eval()(torch.tensor([PROMPT])).logits[0, -1].numpy()
    except Exception:
        return None


def of_the_engine(folder):
    """Return the logits after the prompt, or the error that refuses the model."""
    try:
        with tensor_ops_decode.PersistentKernel(
            backend="python", model=folder, max_seq_length=32, max_num_batched_requests=1
        ) as kernel:
            kernel.compile()
            request = kernel.add_request(PROMPT, max_new_tokens=1)
            kernel()
            return kernel.logits(request)
    except tensor_ops_decode.FileFormatError as error:
        return str(error)
