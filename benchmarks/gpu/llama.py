"""Programs of Llamas with random weights: how fast they are read depends on no value."""

from typing import Any

import numpy as np

from decode_cuda.model import Product, Shape
from tensor_ops_decode import Builder, Limits, Tensor
from tensor_ops_decode.program import Cache

__all__ = ["KINDS", "program_of"]

# The engine's names of the types, and their blocks: numbers, and bytes behind the scale.
KINDS = {"BF16": "bf16", "Q8_0": "q8_0", "Q4_0": "q4_0"}
BLOCK, BLOCK_BYTES = 32, {"q8_0": 32, "q4_0": 16}
PAGE = 64
EPS = 1e-5


def program_of(
    shape: Shape, kind: str, requests: int, positions: int
) -> tuple[str, dict[str, np.ndarray]]:
    """Return a program as JSON, and its tensors, of which all layers have the same.

    Parameters
    ----------
    shape : Shape
    kind : str
        Of the matrices, as KINDS has it.
    requests, positions : int
        How many requests there is room for, and of how many positions each.
    """
    pages = -(-positions // PAGE)
    builder = Builder(
        Limits(
            max_requests=requests,
            max_tokens=PAGE,
            max_selected=requests,
            max_seq_length=pages * PAGE,
            page_size=PAGE,
            num_pages=requests * pages,
        )
    )
    made = _Llama(shape, KINDS[kind], builder)
    return made.program(), made.tensors


class _Llama:
    def __init__(self, shape: Shape, kind: str, builder: Builder) -> None:
        self._shape, self._kind, self._builder = shape, kind, builder
        self._drawn: dict[tuple[int, int], np.ndarray] = {}
        self.tensors: dict[str, np.ndarray] = {}

    def program(self) -> str:
        shape, add = self._shape, self._builder.add
        table = self._matrix("table", shape.words, shape.hidden)
        rotation = self._rotation()
        x = add("embed", {"tokens": "tokens"}, {"weight": table}, output="embedded")
        for layer in range(shape.layers):
            x = self._attention(f"layer {layer}", x, rotation)
            if layer + 1 == shape.layers:
                x = add("select", {"x": x}, output="selected")
            x = self._mlp(f"layer {layer}", x)
        head = self._matrix("head", shape.words, shape.hidden) if shape.has_own_head else table
        self._normalised("logits", x, [head])
        add("argmax", {"x": "logits"}, output="next")
        text: str = self._builder.program(["logits", "next"]).to_json()
        return text

    def _rotation(self) -> dict[str, str]:
        pairs = self._shape.head_size // 2
        positions = np.arange(self._builder.limits.max_seq_length)
        angles = positions[:, None] * 500000.0 ** (-np.arange(pairs) / pairs)
        for name, values in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            self.tensors[name] = values.astype(np.float32)
            self._builder.tensor(name, Tensor("f32", values.shape, {"attached": True}))
        return {"cos": "cos", "sin": "sin"}

    def _attention(self, name: str, x: str, rotation: dict[str, str]) -> str:
        shape, add = self._shape, self._builder.add
        qkv, o, _, _ = shape.of_layer
        queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        parts = {"q": queries, "k": keys, "v": keys}
        matrices = [self._matrix(f"{name} {n}", r, qkv.columns) for n, r in parts.items()]
        self._normalised(f"{name} qkv", x, matrices)
        cache = Cache(shape.kv_heads, shape.head_size, "float16", True)
        attributes = {
            "num_heads": shape.heads,
            "num_kv_heads": shape.kv_heads,
            "head_size": shape.head_size,
            "scale": shape.head_size**-0.5,
            "window": 0,
            "soft_cap": 0.0,
            "rotation": "halves",
            "eps": EPS,
            "cache": self._builder.cache(f"{name} cache", cache),
        }
        inputs = {"qkv": f"{name} qkv"}
        attended = add("attention", inputs, rotation, attributes, output=f"{name} attended")
        return self._added(f"{name} o", attended, x, o)

    def _mlp(self, name: str, x: str) -> str:
        _, _, gate_up, down = self._shape.of_layer
        matrices = [
            self._matrix(f"{name} {n}", gate_up.rows // 2, gate_up.columns) for n in ("gate", "up")
        ]
        self._normalised(f"{name} gate_up", x, matrices)
        gated = {"x": f"{name} gate_up"}
        hidden = self._builder.add("silu_mul", gated, output=f"{name} hidden")
        return self._added(f"{name} down", hidden, x, down)

    def _normalised(self, name: str, x: str, matrices: list[str]) -> None:
        norm, add = f"{name} norm", self._builder.add
        self.tensors[norm] = np.ones(self._shape.hidden, np.float32)
        self._builder.tensor(norm, Tensor("f32", (self._shape.hidden,), {"attached": True}))
        normed = add("rms_norm", {"x": x}, {"weight": norm}, {"eps": EPS}, output=f"{name} normed")
        add("linear", {"x": normed}, {"weight": matrices}, output=name)

    def _added(self, name: str, x: str, residual: str, product: Product) -> str:
        matrix = self._matrix(f"{name} matrix", product.rows, product.columns)
        self._builder.add("linear", {"x": x}, {"weight": matrix}, output=name)
        output: str = self._builder.add("add", {"a": name, "b": residual}, output=f"{name} sum")
        return output

    def _matrix(self, name: str, rows: int, columns: int) -> str:
        size = rows, columns
        if size not in self._drawn:
            self._drawn[size] = _random_matrix(self._kind, rows, columns)
        self.tensors[name] = self._drawn[size]
        declared: str = self._builder.tensor(name, Tensor(self._kind, size, {"attached": True}))
        return declared


def _random_matrix(kind: str, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """Return random values of about the size of trained ones, in the bytes of a type."""
    draw = np.random.default_rng(rows + columns)
    if kind == "bf16":
        values = draw.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    size, scale = BLOCK_BYTES[kind], 0.02 / {"q8_0": 74, "q4_0": 4.6}[kind]
    blocks = draw.integers(0, 256, (rows * columns // BLOCK, 2 + size), dtype=np.uint8)
    blocks[:, :2] = np.array([scale], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)
