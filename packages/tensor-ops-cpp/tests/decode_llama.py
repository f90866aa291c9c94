"""A two-layer Llama of odd sizes as a decode program, and its meaning in float64."""

import json

import numpy as np
from weight_blocks import BLOCKS, NUMBERS, random_weight

import tensor_ops_cpp

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, WORDS = 2, 96, 6, 2, 10, 64, 117
WHOLE = 256  # columns that are whole blocks of every format
# The largest integer of a format, beside the scales of `random_weight`.
LARGEST = {
    "q4_0": 8, "q4_1": 15, "q5_0": 16, "q5_1": 31, "q8_0": 128, "q4_K": 15, "q5_K": 31, "q6_K": 64,
    "q2_K": 1, "q3_K": 2, "iq4_nl": 64, "iq4_xs": 32, "iq3_s": 4, "iq3_xxs": 4, "iq2_s": 2,
    "iq2_xs": 2, "iq2_xxs": 2, "tq1_0": 0.02, "tq2_0": 0.02, "mxfp4": 6, "nvfp4": 6, "q4_zp": 128,
    "f8_e4m3": 128,
}  # fmt: skip
LONGEST, REQUESTS, PAGE = 64, 9, 4
EPS = 1e-5
QKV = (HEADS + 2 * KV_HEADS) * HEAD
LIMITS = {
    "max_requests": REQUESTS,
    "max_tokens": 40,
    "max_selected": 40,
    "max_seq_length": LONGEST,
    "page_size": PAGE,
    "num_pages": 160,
}


class Llama:
    """The program and its tensors; `window` and `soft_cap` are those of its second layer.

    Its matrices have the `formats` in turn, each those of the next matrix that it can hold; a model
    of others than float32 is wider, and is known by its bits only.
    """

    def __init__(
        self, *, window=0, soft_cap=0.0, paged=True, dtype="float32", formats=("f32",), seed=0
    ):
        self.window, self.soft_cap, self.dtype = window, soft_cap, dtype
        self.tensors, self._types, self._shapes = {}, {}, {}
        self._nodes, self._values, self._caches = [], {}, {}
        self._draw, self._formats = np.random.default_rng(seed), list(formats)
        self.width, self.hidden = (WIDTH, HIDDEN) if self._formats == ["f32"] else (WHOLE, WHOLE)
        angles = np.outer(np.arange(LONGEST), 100.0 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
        self._tensor("cos", np.cos(angles))
        self._tensor("sin", np.sin(angles))
        self._tensor("embedding", self._draw.standard_normal((WORDS, self.width)))
        self._node("embed", {"tokens": "tokens"}, {"weight": ["embedding"]}, "x0", self.width)
        for i in range(LAYERS):
            self._layer(i, paged)
        x = f"x{LAYERS}"
        self._node("select", {"x": x}, {}, "last", self.width, rows="selected")
        self._product("head", WORDS, self.width)
        self._vector("norm", self.width)
        self._norm("last", "norm", rows="selected")
        weights = {"weight": ["head"]}
        self._node("linear", {"x": "norm"}, weights, "logits", WORDS, rows="selected")
        for kind in ("argmax", "sample"):
            self._node(kind, {"x": "logits"}, {}, kind, 1, rows="selected", dtype="int32")

    @property
    def program(self):
        return {
            "format": "tensor-ops program",
            "version": 2,
            "limits": LIMITS,
            "tensors": {
                name: {
                    "type": self._types[name],
                    "shape": list(self._shapes[name]),
                    "source": {"attached": True},
                }
                for name in self.tensors
            },
            "caches": self._caches,
            "values": self._values,
            "nodes": self._nodes,
            "outputs": ["logits", "argmax", "sample", f"x{LAYERS}"],
        }

    def compile(self, **given):
        return tensor_ops_cpp.compile_program(json.dumps(self.program), self.tensors, **given)

    def _tensor(self, name, values):
        self._store(name, "f32", values.shape, values.astype(np.float32))

    def _store(self, name, kind, shape, data):
        self.tensors[name], self._types[name], self._shapes[name] = data, kind, shape

    def _vector(self, name, size):
        self._tensor(name, 1 + 0.1 * self._draw.standard_normal(size))

    def _product(self, name, rows, columns):
        fits = (f for f in self._formats if f in NUMBERS or columns % BLOCKS[f][0] == 0)
        kind = next(fits)
        self._formats.remove(kind)
        self._formats.append(kind)
        # About as large for every format, whose integers differ.
        scale = columns**-0.5 / LARGEST.get(kind, 1)
        data = random_weight(self._draw, kind, rows, columns, scale)
        if kind == "f32":
            data = data.view(np.float32)
        self._store(name, kind, (rows, columns), data)

    def _node(
        self,
        kind,
        inputs,
        weights,
        output,
        columns,
        attributes=None,
        rows="tokens",
        dtype="float32",
    ):
        self._values[output] = {"rows": rows, "columns": columns, "dtype": dtype}
        self._nodes.append(
            {
                "kind": kind,
                "name": f"node.{output}",
                "inputs": inputs,
                "weights": weights,
                "outputs": {"output": output},
                "attributes": attributes or {},
            }
        )

    def _layer(self, i, paged):
        width, hidden = self.width, self.hidden
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            self._product(f"{name}{i}", rows * HEAD, width)
            self._vector(f"{name}_bias{i}", rows * HEAD)
        self._product(f"o{i}", width, HEADS * HEAD)
        self._product(f"gate{i}", hidden, width)
        self._product(f"up{i}", hidden, width)
        self._product(f"down{i}", width, hidden)
        for name in ("attention_norm", "mlp_norm"):
            self._vector(f"{name}{i}", width)
        self._norm(f"x{i}", f"attention_norm{i}")
        weights = {"weight": [f"{n}{i}" for n in "qkv"], "bias": [f"{n}_bias{i}" for n in "qkv"]}
        self._node("linear", {"x": f"attention_norm{i}"}, weights, f"qkv{i}", QKV)
        cache = {"num_kv_heads": KV_HEADS, "head_size": HEAD, "dtype": self.dtype, "paged": paged}
        self._caches[f"cache{i}"] = cache
        attributes = {
            "num_heads": HEADS,
            "num_kv_heads": KV_HEADS,
            "head_size": HEAD,
            "scale": HEAD**-0.5,
            "window": self.window * i,
            "soft_cap": self.soft_cap * i,
            "rotation": "halves",
            "eps": 0,
            "cache": f"cache{i}",
        }
        tables = {"cos": ["cos"], "sin": ["sin"]}
        self._node("attention", {"qkv": f"qkv{i}"}, tables, f"a{i}", HEADS * HEAD, attributes)
        self._node("linear", {"x": f"a{i}"}, {"weight": [f"o{i}"]}, f"o{i}", width)
        self._node("add", {"a": f"o{i}", "b": f"x{i}"}, {}, f"y{i}", width)
        self._norm(f"y{i}", f"mlp_norm{i}")
        weights = {"weight": [f"gate{i}", f"up{i}"]}
        self._node("linear", {"x": f"mlp_norm{i}"}, weights, f"f{i}", 2 * hidden)
        self._node("silu_mul", {"x": f"f{i}"}, {}, f"hidden{i}", hidden)
        self._node("linear", {"x": f"hidden{i}"}, {"weight": [f"down{i}"]}, f"down{i}", width)
        self._node("add", {"a": f"down{i}", "b": f"y{i}"}, {}, f"x{i + 1}", width)

    def _norm(self, x, norm, rows="tokens"):
        """Add a norm, whose value is called as its weight."""
        weights, attributes = {"weight": [norm]}, {"eps": EPS}
        self._node("rms_norm", {"x": x}, weights, norm, self.width, attributes, rows)

    def logits(self, tokens):
        """The logits of every token of a sequence, in float64."""
        w = {name: tensor.astype(np.float64) for name, tensor in self.tensors.items()}

        def norm(x, weight):
            return x * weight / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS)

        def rotated(x):
            a, b = np.split(x, 2, axis=-1)
            cos, sin = (w[name][: len(x), None] for name in ("cos", "sin"))
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

        x = w["embedding"][tokens]
        distance = np.subtract.outer(np.arange(len(x)), np.arange(len(x)))
        for i in range(LAYERS):
            h = norm(x, w[f"attention_norm{i}"])
            q, k, v = (
                (h @ w[f"{n}{i}"].T + w[f"{n}_bias{i}"]).reshape(len(x), -1, HEAD) for n in "qkv"
            )
            q, k = rotated(q), rotated(k)
            k, v = (kept(each, self.dtype) for each in (k, v))
            k, v = (each.repeat(HEADS // KV_HEADS, axis=1) for each in (k, v))
            scores = np.einsum("qhd,khd->hqk", q, k) * HEAD**-0.5
            if self.soft_cap and i:
                scores = self.soft_cap * np.tanh(scores / self.soft_cap)
            hidden = (distance < 0) | (bool(self.window and i) & (distance >= self.window))
            scores[:, hidden] = -np.inf
            p = np.exp(scores - scores.max(axis=-1, keepdims=True))
            a = np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), v)
            x = x + a.reshape(len(x), -1) @ w[f"o{i}"].T
            h = norm(x, w[f"mlp_norm{i}"])
            gate, up = h @ w[f"gate{i}"].T, h @ w[f"up{i}"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[f"down{i}"].T
        return norm(x, w["norm"]) @ w["head"].T


def kept(x, dtype):
    """Heads as a cache of this dtype keeps them, in float64; float32 keeps all."""
    if dtype == "float32":
        return x
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float64)
    parts = []
    for group in np.split(x, range(32, x.shape[-1], 32), axis=-1):
        scale = (np.abs(group).max(axis=-1, keepdims=True) / 127).astype(np.float16)
        steps = np.rint(group / scale.astype(x.dtype)).clip(-127, 127)
        parts.append(steps.astype(np.float64) * scale)
    return np.concatenate(parts, axis=-1)


def run_step(executable, chunks):
    """One step of chunks (slot, first position, tokens); returns the three outputs by chunk."""
    arrays, count = executable.arrays, sum(len(tokens) for _, _, tokens in chunks)
    at = 0
    for slot, first, tokens in chunks:
        part = slice(at, at + len(tokens))
        arrays["tokens"][part], arrays["slots"][part] = tokens, slot
        arrays["positions"][part] = np.arange(first, first + len(tokens))
        pages = np.arange(LONGEST // PAGE)
        arrays["page_table"][slot] = LIMITS["num_pages"] - 1 - (pages * REQUESTS + slot)
        at += len(tokens)
    arrays["selected"][:count] = np.arange(count)
    executable.run(count, count)
    names = ("logits", "argmax", "sample")
    ends = np.cumsum([len(tokens) for _, _, tokens in chunks])[:-1]
    return list(zip(*(np.split(arrays[n][:count].copy(), ends) for n in names), strict=True))


def run_alone(executable, tokens, chunk, slot=0):
    """A sequence in chunks of so many tokens; returns the three outputs of all tokens."""
    steps = [
        run_step(executable, [(slot, first, tokens[first : first + chunk])])[0]
        for first in range(0, len(tokens), chunk)
    ]
    return [np.concatenate(parts) for parts in zip(*steps, strict=True)]
