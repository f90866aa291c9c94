"""Files of random hybrids: in three of four layers linear attention, which keeps a state."""

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from decode_peers.matrices import POSITIONS, WORDS, random_matrix

__all__ = ["HYBRIDS", "HybridShape", "write_hybrid"]

# Every so many layers have attention.
_INTERVAL = 4
_KERNEL = 4


@dataclass(frozen=True)
class HybridShape:
    """Sizes of a Qwen 3.5; keys and values of linear attention have `state` elements.

    With experts, each layer has as many MLPs, of which some compute, and one that always does.
    """

    hidden: int
    layers: int
    heads: int
    key_heads: int
    head: int
    inner: int
    linear_key_heads: int
    linear_heads: int
    state: int
    experts: int = 0
    chosen: int = 0


# Qwen 3.5 of 0.8 and of 4 billion weights, with fewer words if it is not said how many, and four
# of the layers of Qwen 3.5 35B-A3B.
HYBRIDS = {
    "0.8B": HybridShape(1024, 24, 8, 2, 256, 3584, 16, 16, 128),
    "4B": HybridShape(2560, 32, 16, 4, 256, 9216, 16, 32, 128),
    "A3B": HybridShape(2048, 4, 16, 2, 256, 512, 16, 32, 128, 256, 8),
}
# What layers add to the residual, in a model whose next token the last one decides on.
_ADDED = ("attn_output", "ssm_out", "ffn_down")


def write_hybrid(
    path: Path,
    shape: HybridShape,
    kind: str,
    words: int = WORDS,
    noise: float | None = None,
    said: int | None = None,
) -> None:
    """Write a model whose matrices have a format; those of all layers of a kind are the same.

    With `noise` it has a layer that guesses tokens, which agrees with the model the less, the more
    noise there is: the model then adds nothing to the embedding of a token, though it computes all
    that others do, and the layer sees that embedding with noise. It never says a word behind the
    first `said`.
    """
    draw, hidden = np.random.default_rng(0), shape.hidden
    writer = gguf.GGUFWriter(path, "qwen35moe" if shape.experts else "qwen35")
    _write_settings(writer, shape, words, noise is not None)
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
    mlp = _sizes_of_mlp(shape)
    stored = gguf.GGMLQuantizationType[kind]
    matrices = {
        name: random_matrix(draw, *sizes, kind=kind)
        for name, sizes in (linear | full | mlp).items()
    }
    if noise is not None:
        for name in _ADDED:
            matrices[name][:] = 0
        head = random_matrix(draw, words, hidden, kind=kind)
        head[said:] = 0
        writer.add_tensor("output.weight", head, raw_dtype=stored)
    table = random_matrix(draw, words, hidden, kind=kind)
    writer.add_tensor("token_embd.weight", table, raw_dtype=stored)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    norms = {"attn_norm": hidden, "post_attention_norm": hidden}
    of_full = norms | {"attn_q_norm": shape.head, "attn_k_norm": shape.head}
    of_linear = norms | {"ssm_norm": shape.state}
    for layer in range(shape.layers + (noise is not None)):
        is_full = (layer + 1) % _INTERVAL == 0 or layer == shape.layers
        for name in (full if is_full else linear) | mlp:
            writer.add_tensor(f"blk.{layer}.{name}.weight", matrices[name], raw_dtype=stored)
        for name, size in (of_full if is_full else of_linear).items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(size, np.float32))
        if shape.experts:
            router = draw.standard_normal((shape.experts, hidden), np.float32) * np.float32(0.02)
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router)
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp_shexp.weight", router[0])
        if not is_full:
            convolution = draw.standard_normal((columns, _KERNEL), np.float32) * np.float32(0.3)
            writer.add_tensor(f"blk.{layer}.ssm_conv1d.weight", convolution)
            writer.add_tensor(f"blk.{layer}.ssm_a", -np.ones(shape.linear_heads, np.float32))
            writer.add_tensor(f"blk.{layer}.ssm_dt.bias", np.zeros(shape.linear_heads, np.float32))
    if noise is not None:
        _write_draft(writer, shape, noise)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _sizes_of_mlp(shape: HybridShape) -> dict[str, tuple[int, ...]]:
    up, down = (shape.inner, shape.hidden), (shape.hidden, shape.inner)
    sizes: dict[str, tuple[int, ...]] = {"ffn_gate": up, "ffn_up": up, "ffn_down": down}
    if not shape.experts:
        return sizes
    stacks = {f"{name}_exps": (shape.experts, *each) for name, each in sizes.items()}
    return stacks | {f"{name}_shexp": each for name, each in sizes.items()}


def _write_draft(writer: gguf.GGUFWriter, shape: HybridShape, noise: float) -> None:
    """Write what a layer that guesses has beside others; it sees the chosen token alone."""
    hidden, start = shape.hidden, f"blk.{shape.layers}.nextn"
    seen = np.random.default_rng(1).standard_normal((hidden, 2 * hidden), np.float32)
    seen *= np.float32(noise / hidden**0.5)
    seen[:, hidden:] = 0
    seen[:, :hidden] += np.eye(hidden, dtype=np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(f"{start}.eh_proj.weight", gguf.quants.quantize(seen, kind), raw_dtype=kind)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        writer.add_tensor(f"{start}.{name}.weight", np.ones(hidden, np.float32))


def _write_settings(
    writer: gguf.GGUFWriter, shape: HybridShape, words: int, has_draft: bool
) -> None:
    writer.add_context_length(max(POSITIONS, 32768))
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers + has_draft)
    if has_draft:
        writer.add_nextn_predict_layers(1)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(shape.head // 4)
    writer.add_rope_dimension_sections([11, 11, 10, 0])  # of text all have the same positions
    writer.add_vocab_size(words)
    writer.add_tokenizer_model("no_vocab")
    writer.add_ssm_conv_kernel(_KERNEL)
    writer.add_ssm_state_size(shape.state)
    writer.add_ssm_group_count(shape.linear_key_heads)
    writer.add_ssm_time_step_rank(shape.linear_heads)
    writer.add_ssm_inner_size(shape.linear_heads * shape.state)
    writer.add_full_attention_interval(_INTERVAL)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.inner)
        writer.add_expert_shared_feed_forward_length(shape.inner)
