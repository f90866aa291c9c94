"""A two-layer Llama of odd sizes as a decode program, and its meaning in float64."""

import json

import numpy as np

import tensor_ops_cpp

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, WORDS = 2, 96, 6, 2, 10, 64, 117
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
    """The program and its tensors; `window` and `soft_cap` are those of its second layer."""

    def __init__(self, *, window=0, soft_cap=0.0, paged=True, dtype="float32", q8=False, seed=0):
        self.window, self.soft_cap, self.dtype = window, soft_cap, dtype
        self.tensors, self._types, self._nodes, self._values, self._caches = {}, {}, [], {}, {}
        self._draw, self._q8 = np.random.default_rng(seed), q8
        angles = np.outer(np.arange(LONGEST), 100.0 ** (-np.arange(HEAD // 2) / (HEAD // 2)))
        self._tensor("cos", np.cos(angles))
        self._tensor("sin", np.sin(angles))
        self._tensor("embedding", self._draw.standard_normal((WORDS, WIDTH)))
        self._node("embed", {"tokens": "tokens"}, {"weight": ["embedding"]}, "x0", WIDTH)
        for i in range(LAYERS):
            self._layer(i, paged)
        x = f"x{LAYERS}"
        self._node("select", {"x": x}, {}, "last", WIDTH, rows="selected")
        self._product("head", WORDS, WIDTH)
        self._vector("norm", WIDTH)
        weights = {"norm": ["norm"], "weight": ["head"]}
        attributes = {"eps": EPS}
        self._node(
            "rms_norm_linear", {"x": "last"}, weights, "logits", WORDS, attributes, "selected"
        )
        for kind in ("argmax", "sample"):
            self._node(kind, {"x": "logits"}, {}, kind, 1, rows="selected", dtype="int32")

    @property
    def program(self):
        return {
            "format": "tensor-ops program",
            "version": 1,
            "limits": LIMITS,
            "tensors": {
                name: {
                    "type": self._types[name],
                    "shape": list(self._shape(name)),
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

    def _shape(self, name):
        tensor = self.tensors[name]
        if self._types[name] == "q8_0":
            return (len(tensor), tensor.shape[1] // 34 * 32)
        return tensor.shape

    def _tensor(self, name, values):
        self.tensors[name], self._types[name] = values.astype(np.float32), "f32"

    def _vector(self, name, size):
        self._tensor(name, 1 + 0.1 * self._draw.standard_normal(size))

    def _product(self, name, rows, columns):
        """A matrix, stored in Q8_0 where the model is and the columns are whole blocks."""
        values = (self._draw.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)
        self._tensor(name, values)
        if not self._q8 or columns % 32:
            return
        blocks = values.reshape(rows, -1, 32)
        scale = (np.abs(blocks).max(axis=2, keepdims=True) / 127).astype(np.float16)
        numbers = np.rint(blocks / scale).clip(-127, 127).astype(np.int8)
        data = np.concatenate([scale.view(np.uint8), numbers.view(np.uint8)], axis=2)
        self.tensors[name], self._types[name] = data.reshape(rows, -1), "q8_0"

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
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            self._product(f"{name}{i}", rows * HEAD, WIDTH)
            self._vector(f"{name}_bias{i}", rows * HEAD)
        self._product(f"o{i}", WIDTH, HEADS * HEAD)
        self._product(f"gate{i}", HIDDEN, WIDTH)
        self._product(f"up{i}", HIDDEN, WIDTH)
        self._product(f"down{i}", WIDTH, HIDDEN)
        for name in ("attention_norm", "mlp_norm"):
            self._vector(f"{name}{i}", WIDTH)
        weights = {"norm": [f"attention_norm{i}"], "weight": [f"{n}{i}" for n in "qkv"]}
        weights["bias"] = [f"{n}_bias{i}" for n in "qkv"]
        self._node("rms_norm_linear", {"x": f"x{i}"}, weights, f"qkv{i}", QKV, {"eps": EPS})
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
        inputs = {"x": f"a{i}", "residual": f"x{i}"}
        self._node("linear", inputs, {"weight": [f"o{i}"]}, f"y{i}", WIDTH)
        weights = {"norm": [f"mlp_norm{i}"], "weight": [f"gate{i}", f"up{i}"]}
        self._node("rms_norm_linear", {"x": f"y{i}"}, weights, f"f{i}", 2 * HIDDEN, {"eps": EPS})
        inputs = {"x": f"f{i}", "residual": f"y{i}"}
        self._node(
            "silu_mul_linear_with_residual", inputs, {"weight": [f"down{i}"]}, f"x{i + 1}", WIDTH
        )

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
            if self.dtype == "float16":
                k, v = (each.astype(np.float16).astype(np.float64) for each in (k, v))
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
