"""Programs of decoders of random sizes, with whatever families have: to be divided among ranks."""

import numpy as np

from node_programs import stored
from tensor_ops_decode.program import Cache, Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.sharding.rank_ranges import Heads
from tensor_ops_decode.weights.formats import FORMATS

LIMITS = Limits(2, 6, 4, 32, 4, 16)
EPS = {"eps": 1e-5}
TYPES = ("f32", "q8_0", "q6_K", "bf16", "q4_1")


class RandomModel:
    """A decoder whose sizes and nodes a seed decides.

    Attributes
    ----------
    program : Program
        Its tensors are attached.
    tensors : dict of str to ndarray
        In the types of the program.
    """

    def __init__(self, seed, **chosen):
        self.draw = np.random.default_rng(seed)
        self.chosen = chosen
        self.builder, self.tensors = Builder(LIMITS), {}
        self.kind = chosen.get("kind", TYPES[seed % len(TYPES)])
        self.block = FORMATS[self.kind].block_size
        self.per_group, self.groups = self.pick("per_group", 1, 2, 3), self.pick("groups", 1, 2, 3)
        sizes = {1: (4, 6, 10), 32: (32, 64), 256: (128, 256)}[self.block]
        self.size = self.pick("size", *sizes)
        while self.heads * self.size % self.block or self.divided_heads.most < 2:
            self.groups += 1
        self.inner = self.pick("inner", 2, 3, 5) * (self.block if self.block > 1 else 10)
        self.hidden = self.block if self.block > 1 else 12
        self.vocabulary = self.pick("vocabulary", 17, 30)
        self.is_gemma = self.pick("is_gemma", False, True)
        self.program = self.whole()

    @property
    def heads(self):
        return self.per_group * self.groups

    @property
    def divided_heads(self):
        return Heads(self.heads, self.groups, self.size, self.block)

    def pick(self, name, *choices):
        """Return one of some choices, or what was chosen when the model was made."""
        index = int(self.draw.integers(len(choices)))
        return self.chosen.get(name, choices[index])

    def has(self, name):
        return self.pick(name, False, True)

    def tensor(self, name, *shape, kind="f32"):
        values = self.draw.standard_normal(shape) / shape[-1] ** 0.5 if len(shape) > 1 else None
        values = self.draw.standard_normal(shape) if values is None else values
        self.tensors[name] = stored(values, kind)
        return self.builder.tensor(name, Tensor(kind, shape, {"attached": True}))

    def product(self, name, parts, columns, *, is_fused=False, has_bias=False):
        """Return the slots of a product with matrices of so many rows."""
        parts = [sum(parts)] if is_fused else parts
        rows = list(enumerate(parts))
        matrices = [self.tensor(f"{name}.{i}", n, columns, kind=self.kind) for i, n in rows]
        biases = [self.tensor(f"{name}.{i}.bias", n) for i, n in rows] if has_bias else []
        return {"weight": matrices} | ({"bias": biases} if biases else {})

    def whole(self):
        add = self.builder.add
        table = self.tensor("table", self.vocabulary, self.hidden, kind=self.kind)
        x = add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
        for layer in range(2):
            x = self.attention(f"{layer}.", x)
            if layer == 1 and self.has("selects_early"):
                x = add("select", {"x": x}, output="last")
            x = self.mlp(f"{layer}.", x)
        if "last" not in x and self.builder.value(x).rows == "tokens":
            x = add("select", {"x": x}, output="last")
        head = table
        if self.has("has_head"):
            head = self.tensor("head", self.vocabulary, self.hidden, kind=self.kind)
        norm = {"weight": self.tensor("norm", self.hidden)}
        x = add("rms_norm", {"x": x}, norm, EPS, output="normed")
        logits = add("linear", {"x": x}, {"weight": head}, output="raw")
        if self.is_gemma:
            logits = add("soft_cap", {"x": "raw"}, None, {"cap": 3.0}, output="logits")
        add("sample", {"x": logits}, output="next")
        return self.builder.program([logits, "next"])

    def normalised(self, name, x, weights, output):
        """Add a product with a normalised value."""
        norm = self.tensor(f"{name}.norm", self.hidden)
        kind = self.pick("norm", "rms_norm", "layer_norm")
        x = self.builder.add(kind, {"x": x}, {"weight": norm}, EPS, output=f"{output}.normed")
        return self.builder.add("linear", {"x": x}, weights, output=output)

    def attention(self, name, x):
        size, groups = self.size, self.groups
        parts = [each * size for each in (self.heads, groups, groups)]
        slots = {"is_fused": self.has("fused_qkv"), "has_bias": self.has("qkv_bias")}
        qkv = self.product(f"{name}qkv", parts, self.hidden, **slots)
        value = self.normalised(f"{name}attention", x, qkv, f"{name}qkv")
        weights = {}
        if self.has("rotates"):
            weights = self.builder.rotary_tables(0.5 ** np.arange(size // 2))
            tables = np.outer(np.arange(LIMITS.max_seq_length), 0.5 ** np.arange(size // 2))
            of = {"cos": np.cos, "sin": np.sin}
            for slot, table in weights.items():
                self.tensors[table] = of[slot](tables).astype(np.float32)
        if self.has("head_norms"):
            weights |= {each: self.tensor(f"{name}{each}", size) for each in ("q_norm", "k_norm")}
        attributes = {
            "num_heads": self.heads,
            "num_kv_heads": groups,
            "head_size": size,
            "scale": size**-0.5,
            "window": self.pick("window", 0, 3),
            "soft_cap": self.pick("soft_cap", 0.0, 2.0),
            "rotation": self.pick("rotation", "halves", "interleaved"),
            "cache": self.builder.cache(f"{name}cache", Cache(groups, size, "float32", True)),
        }
        value = self.builder.add(
            "attention", {"qkv": value}, weights, attributes | EPS, output=f"{name}heads"
        )
        o = self.product(f"{name}o", [self.hidden], self.heads * size, has_bias=self.has("o_bias"))
        return self.added(f"{name}attended", value, o, x)

    def mlp(self, name, x):
        parts, slots = [self.inner] * 2, {"is_fused": self.has("fused_gate_up")}
        gate_up = self.product(
            f"{name}gate_up", parts, self.hidden, **slots, has_bias=self.has("gate_bias")
        )
        value = self.normalised(f"{name}mlp", x, gate_up, f"{name}gate_up")
        has_bias = self.has("down_bias")
        down = self.product(f"{name}down", [self.hidden], self.inner, has_bias=has_bias)
        attributes = {"approximate": "tanh"} if self.is_gemma else None
        gate = "gelu_mul" if self.is_gemma else "silu_mul"
        value = self.builder.add(gate, {"x": value}, None, attributes, output=f"{name}gated")
        return self.added(f"{name}output", value, down, x)

    def added(self, name, x, weights, residual):
        """Add a product to a residual, of Gemma after its norm."""
        x = self.builder.add("linear", {"x": x}, weights, output=f"{name}.product")
        if self.is_gemma:
            norm = {"weight": self.tensor(f"{name}.norm", self.hidden)}
            x = self.builder.add("rms_norm", {"x": x}, norm, EPS, output=f"{name}.normed")
        return self.builder.add("add", {"a": x, "b": residual}, output=name)
