"""LoRA adapters of random weights, as peft saves them, and the models that they make of others."""

import copy
import json
import math
import re

import torch
from safetensors.torch import save_file

# What peft writes where nothing else is asked for, of what is not null.
CONFIG = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "model",
    "peft_version": "0.21.2",
    "inference_mode": True,
    "r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.05,
    "fan_in_fan_out": False,
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "init_lora_weights": True,
    "rank_pattern": {},
    "alpha_pattern": {},
    "loftq_config": {},
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "lora_bias": False,
    "qalora_group_size": 16,
}
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@torch.no_grad()
def write_adapter(folder, model, targets=ALL, *, dtype=torch.float32, seed=0, **changed):
    """Write an adapter for the linear layers that end so; return the model with it merged.

    Patterns of ranks and of alpha have names that modules end with.
    """
    config = {**CONFIG, "target_modules": list(targets), **changed}
    torch.manual_seed(seed)
    merged, tensors = copy.deepcopy(model), {}
    for name, module in merged.named_modules():
        if not name.endswith(tuple(targets)):
            continue
        rank = number_of(name, config["rank_pattern"], config["r"])
        alpha = number_of(name, config["alpha_pattern"], config["lora_alpha"])
        rows, columns = module.weight.shape
        down = (0.3 * torch.randn(rank, columns)).to(dtype)
        up = (0.3 * torch.randn(rows, rank)).to(dtype)
        factor = alpha / (math.sqrt(rank) if config["use_rslora"] else rank)
        module.weight += factor * up.float() @ down.float()
        prefix = f"base_model.model.{name}"
        tensors |= {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up}
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    text = json.dumps(config)
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")
    return merged


def number_of(name, pattern, default):
    found = (value for key, value in pattern.items() if re.search(rf"(^|\.){key}$", name))
    return next(found, default)
