"""A decoder-only transformer: its sizes, the names of its tensors, and its program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensor_ops_decode.builder import Builder
from tensor_ops_decode.program import Cache, Limits, Program, Tensor
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["GGUF_NAMES", "HUGGING_FACE_NAMES", "Decoder", "program_of"]

#: What the tensors are called in the two kinds of files; a layer's have its number in front.
GGUF_NAMES = {
    "layer": "blk.{}.",
    "embedding": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
HUGGING_FACE_NAMES = {
    "layer": "model.layers.{}.",
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


@dataclass(frozen=True)
class Decoder:
    """What a model's program is made from.

    Attributes
    ----------
    names : mapping of str to str
        As `GGUF_NAMES`.
    hidden, layers, heads, kv_heads, head_size, intermediate, vocabulary, context : int
        `context` is the longest sequence that the model was made for.
    eps : float
    frequencies : tuple of float
        Of the rotation of queries and keys: radians per position.
    rotation : {"halves", "interleaved"}
    is_tied : bool
        Whether the head is the embedding.
    """

    names: Mapping[str, str]
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    context: int
    eps: float
    frequencies: tuple[float, ...]
    rotation: str
    is_tied: bool


def program_of(
    decoder: Decoder, files: Weights, limits: Limits, cache_dtype: str | None = None
) -> Program:
    """Return the program of a model, with the values ``logits`` and ``next``.

    Parameters
    ----------
    decoder : Decoder
    files : Weights
        Where its tensors are.
    limits : Limits
    cache_dtype : {"float32", "float16"}, optional
        By default float32 if all matrices are f32, else float16.

    Raises
    ------
    FileFormatError
        If a tensor is missing or has another shape.
    """
    program = _Assembly(decoder, files, limits, cache_dtype or "float32").program()
    matrices = [tensor for tensor in program.tensors.values() if len(tensor.shape) == 2]
    if cache_dtype is not None or all(tensor.type == "f32" for tensor in matrices):
        return program
    caches = {name: replace(each, dtype="float16") for name, each in program.caches.items()}
    return replace(program, caches=caches)


class _Assembly:
    def __init__(self, decoder: Decoder, files: Weights, limits: Limits, cache_dtype: str) -> None:
        self.decoder, self.files, self.cache_dtype = decoder, files, cache_dtype
        self.builder = Builder(limits)
        self.rotary = self.builder.rotary_tables(decoder.frequencies)

    def program(self) -> Program:
        decoder, builder = self.decoder, self.builder
        further = self.name("attention_norm", decoder.layers)
        if further in self.files.names:
            raise FileFormatError(
                f"{self.files.path}: there is a tensor {further!r}, but the model has only "
                f"{decoder.layers} layers"
            )
        embedding = self.matrix("embedding", decoder.vocabulary, decoder.hidden)
        x = builder.add("embed", {"tokens": "tokens"}, {"weight": embedding}, output="embedding")
        for layer in range(decoder.layers):
            x = self.mlp(layer, self.attention(layer, x))
        x = builder.add("select", {"x": x}, output="selected")
        head = embedding
        if not decoder.is_tied:
            head = self.matrix("head", decoder.vocabulary, decoder.hidden)
        norm = {"norm": self.vector("norm", decoder.hidden), "weight": head}
        builder.add("rms_norm_linear", {"x": x}, norm, {"eps": decoder.eps}, output="logits")
        return builder.program(["logits", builder.add("sample", {"x": "logits"}, output="next")])

    def attention(self, layer: int, x: str) -> str:
        decoder, builder, prefix = self.decoder, self.builder, f"layer.{layer}."
        size, heads, kv_heads = decoder.head_size, decoder.heads, decoder.kv_heads
        qkv = builder.add(
            "rms_norm_linear",
            {"x": x},
            {
                "norm": self.vector("attention_norm", decoder.hidden, layer),
                **self.linear({"q": heads, "k": kv_heads, "v": kv_heads}, size, layer),
            },
            {"eps": decoder.eps},
            output=f"{prefix}qkv",
        )
        cache = builder.cache(f"{prefix}cache", Cache(kv_heads, size, self.cache_dtype, True))
        attended = builder.add(
            "attention",
            {"qkv": qkv},
            self.rotary,
            {
                "num_heads": heads,
                "num_kv_heads": kv_heads,
                "head_size": size,
                "scale": size**-0.5,
                "window": 0,
                "soft_cap": 0.0,
                "rotation": decoder.rotation,
                "eps": decoder.eps,
                "cache": cache,
            },
            output=f"{prefix}attention",
        )
        weights = self.linear({"o": decoder.hidden}, 1, layer, heads * size)
        inputs = {"x": attended, "residual": x}
        return builder.add("linear", inputs, weights, output=f"{prefix}attended")

    def mlp(self, layer: int, x: str) -> str:
        decoder, builder, prefix = self.decoder, self.builder, f"layer.{layer}."
        gate_up = builder.add(
            "rms_norm_linear",
            {"x": x},
            {
                "norm": self.vector("mlp_norm", decoder.hidden, layer),
                **self.linear({"gate": 1, "up": 1}, decoder.intermediate, layer),
            },
            {"eps": decoder.eps},
            output=f"{prefix}gate_up",
        )
        return builder.add(
            "silu_mul_linear_with_residual",
            {"x": gate_up, "residual": x},
            self.linear({"down": decoder.hidden}, 1, layer, decoder.intermediate),
            output=f"{prefix}output",
        )

    def linear(
        self, rows: Mapping[str, int], unit: int, layer: int, columns: int | None = None
    ) -> dict[str, list[str]]:
        """Return the slots ``weight`` and, if there are any, ``bias`` for some matrices of a layer.

        The matrix of each role has so many times `unit` rows.
        """
        columns = columns or self.decoder.hidden
        slots = {
            "weight": [self.matrix(role, n * unit, columns, layer) for role, n in rows.items()]
        }
        have_bias = [role for role in rows if self.name(role, layer, "bias") in self.files.names]
        if have_bias:
            for role in rows:  # a missing one is an error then
                slots.setdefault("bias", []).append(
                    self.tensor(self.name(role, layer, "bias"), (rows[role] * unit,))
                )
        return slots

    def matrix(self, role: str, rows: int, columns: int, layer: int | None = None) -> str:
        return self.tensor(self.name(role, layer), (rows, columns))

    def vector(self, role: str, length: int, layer: int | None = None) -> str:
        return self.tensor(self.name(role, layer), (length,))

    def name(self, role: str, layer: int | None, part: str = "weight") -> str:
        names = self.decoder.names
        prefix = "" if layer is None else names["layer"].format(layer)
        return f"{prefix}{names[role]}.{part}"

    def tensor(self, name: str, shape: tuple[int, ...]) -> str:
        if name not in self.files.names:
            raise FileFormatError(f"{self.files.path}: tensor {name!r}, shape {shape}, is missing")
        found = self.files.tensor(name)
        if found.shape != shape:
            raise FileFormatError(
                f"{found.file}: tensor {name!r} has shape {found.shape}, expected {shape}"
            )
        source = {"file": found.file, "tensor": name, "transform": []}
        return self.builder.tensor(name, Tensor(found.type, shape, source))
