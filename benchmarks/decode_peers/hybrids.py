"""Files of random hybrids: in three of four layers linear attention, which keeps a state."""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from decode_peers.models import POSITIONS, WORDS, random_matrix

__all__ = ["HYBRIDS", "HybridShape", "write_hybrid"]

# Every so many layers have attention.
_INTERVAL = 4
_KERNEL = 4


@dataclass(frozen=True)
class HybridShape:
    """Sizes of a dense Qwen 3.5; keys and values of linear attention have `state` elements."""

    hidden: int
    layers: int
    heads: int
    key_heads: int
    head: int
    inner: int
    linear_key_heads: int
    linear_heads: int
    state: int


# Qwen 3.5 of 0.8 billion weights, with fewer words.
HYBRIDS = {"0.8B": HybridShape(1024, 24, 8, 2, 256, 3584, 16, 16, 128)}


def write_hybrid(path: Path, shape: HybridShape, kind: str) -> None:
    """Write a model whose matrices have a format; those of all layers of a kind are the same."""
    draw, hidden = np.random.default_rng(0), shape.hidden
    writer = gguf.GGUFWriter(path, "qwen35")
    _write_settings(writer, shape)
    values = shape.linear_heads * shape.state
    columns = 2 * shape.linear_key_heads * shape.state + values
    queries, keys = shape.heads * shape.head, shape.key_heads * shape.head
    linear = {
        "attn_qkv": (columns, hidden),
        "attn_gate": (values, hidden),
        "ssm_beta": (shape.linear_heads, hidden),
        "ssm_alpha": (shape.linear_heads, hidden),
        "ssm_out": (hidden, values),
    }
    full = {
        "attn_q": (2 * queries, hidden),  # with their gates
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
    }
    mlp = {
        "ffn_gate": (shape.inner, hidden),
        "ffn_up": (shape.inner, hidden),
        "ffn_down": (hidden, shape.inner),
    }
    stored = gguf.GGMLQuantizationType[kind]
    matrices = {
        name: random_matrix(draw, *sizes, kind=kind)
        for name, sizes in (linear | full | mlp).items()
    }
    words = random_matrix(draw, WORDS, hidden, kind=kind)
    writer.add_tensor("token_embd.weight", words, raw_dtype=stored)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    norms = {"attn_norm": hidden, "post_attention_norm": hidden}
    of_full = norms | {"attn_q_norm": shape.head, "attn_k_norm": shape.head}
    of_linear = norms | {"ssm_norm": shape.state}
    for layer in range(shape.layers):
        is_full = (layer + 1) % _INTERVAL == 0
        for name in (full if is_full else linear) | mlp:
            writer.add_tensor(f"blk.{layer}.{name}.weight", matrices[name], raw_dtype=stored)
        for name, size in (of_full if is_full else of_linear).items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(size, np.float32))
        if not is_full:
            convolution = draw.standard_normal((columns, _KERNEL), np.float32) * np.float32(0.3)
            writer.add_tensor(f"blk.{layer}.ssm_conv1d.weight", convolution)
            writer.add_tensor(f"blk.{layer}.ssm_a", -np.ones(shape.linear_heads, np.float32))
            writer.add_tensor(f"blk.{layer}.ssm_dt.bias", np.zeros(shape.linear_heads, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_settings(writer: gguf.GGUFWriter, shape: HybridShape) -> None:
    writer.add_context_length(max(POSITIONS, 32768))
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(shape.head // 4)
    writer.add_vocab_size(WORDS)
    writer.add_tokenizer_model("no_vocab")
    writer.add_ssm_conv_kernel(_KERNEL)
    writer.add_ssm_state_size(shape.state)
    writer.add_ssm_group_count(shape.linear_key_heads)
    writer.add_ssm_time_step_rank(shape.linear_heads)
    writer.add_ssm_inner_size(shape.linear_heads * shape.state)
    writer.add_full_attention_interval(_INTERVAL)
