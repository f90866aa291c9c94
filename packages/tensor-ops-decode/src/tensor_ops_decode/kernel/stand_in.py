"""The model of a kernel that is given none: a tiny Llama of random weights.

It is there so that a kernel can be tried, compiled and timed without a file. It has learnt nothing,
and its times say nothing about a real model's. Its matrices are of a type that every executor runs.
"""

import numpy as np
from ml_dtypes import bfloat16

from tensor_ops.extension import machine
from tensor_ops_decode.executors.memory_plan import cache_bytes, require_bytes
from tensor_ops_decode.kernel.layers import KernelTensor, Layers
from tensor_ops_decode.program import Cache, Limits

__all__ = ["DESCRIPTION", "add_layers"]

_VOCABULARY, _HIDDEN, _FFN, _LAYERS = 256, 64, 192, 2
_HEADS, _KV_HEADS, _HEAD_SIZE = 4, 2, 16

#: What the model is called.
DESCRIPTION = f"a stand-in of {_LAYERS} layers with random weights, because no model was given"


def add_layers(layers: Layers, limits: Limits) -> None:
    """Describe the stand-in; its weights are the same every time."""
    caches = _LAYERS * cache_bytes(limits, Cache(_KV_HEADS, _HEAD_SIZE, "float16", paged=True))
    rotary = limits.max_seq_length * _HEAD_SIZE * 4
    needed = {"caches": caches, "rotary tables": rotary}
    require_bytes(limits, needed, machine.usable_memory())
    random = np.random.default_rng(0)

    def weight(name: str, rows: int, columns: int) -> KernelTensor:
        values = random.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)
        return layers.attach_input(values.astype(bfloat16), name=name)

    def value(name: str, columns: int) -> KernelTensor:
        return layers.new_tensor((limits.max_tokens, columns), name=name)

    angles = np.outer(
        np.arange(limits.max_seq_length), 10000.0 ** (-np.arange(0, _HEAD_SIZE, 2) / _HEAD_SIZE)
    )
    tables = {
        "cos_pos_embed": layers.attach_input(np.cos(angles).astype(np.float32), name="cos"),
        "sin_pos_embed": layers.attach_input(np.sin(angles).astype(np.float32), name="sin"),
    }
    norm = layers.attach_input(np.ones(_HIDDEN, np.float32), name="norm")
    embedding = weight("embedding", _VOCABULARY, _HIDDEN)
    x = layers.embed_layer(weight=embedding, output=value("x", _HIDDEN))
    for number in range(_LAYERS):
        prefix = f"{number}."
        qkv = layers.rmsnorm_linear_layer(
            input=x,
            weight_norm=norm,
            weight_linear=[
                weight(f"{prefix}{role}", heads * _HEAD_SIZE, _HIDDEN)
                for role, heads in (("q", _HEADS), ("k", _KV_HEADS), ("v", _KV_HEADS))
            ],
            output=value(f"{prefix}qkv", (_HEADS + 2 * _KV_HEADS) * _HEAD_SIZE),
        )
        attended = layers.paged_attention_layer(
            input=qkv,
            output=value(f"{prefix}attended", _HEADS * _HEAD_SIZE),
            num_heads=_HEADS,
            num_kv_heads=_KV_HEADS,
            **tables,
        )
        x = layers.linear_with_residual_layer(
            input=attended,
            weight=weight(f"{prefix}o", _HIDDEN, _HEADS * _HEAD_SIZE),
            residual=x,
            output=value(f"{prefix}x", _HIDDEN),
        )
        gate_up = layers.rmsnorm_linear_layer(
            input=x,
            weight_norm=norm,
            weight_linear=[weight(f"{prefix}{role}", _FFN, _HIDDEN) for role in ("gate", "up")],
            output=value(f"{prefix}gate_up", 2 * _FFN),
        )
        x = layers.silu_mul_linear_with_residual_layer(
            input=gate_up,
            weight=weight(f"{prefix}down", _HIDDEN, _FFN),
            residual=x,
            output=value(f"{prefix}output", _HIDDEN),
        )
    rows = limits.max_requests
    last = layers.new_tensor((rows, _HIDDEN), name="last")
    logits = layers.new_tensor((rows, _VOCABULARY), name="logits")
    chosen = layers.new_tensor((rows, 1), "int32", name="next")
    layers.select_layer(input=x, output=last)
    layers.rmsnorm_linear_layer(
        input=last, weight_norm=norm, weight_linear=embedding, output=logits
    )
    layers.argmax_layer(input=logits, output=chosen)
