"""Programs of small Llamas with random weights, and what executors answer."""

from dataclasses import dataclass

import numpy as np
from largest_errors import check_errors

from tensor_ops_decode import Builder, Limits, Tensor
from tensor_ops_decode.program import Cache
from tensor_ops_decode.weights.formats import FORMATS

PAGE = 16


@dataclass(frozen=True)
class Llama:
    """The sizes of a Llama, and the types of its weights and caches."""

    kind: str = "q8_0"
    head_kind: str | None = None  # of the embeddings and the head; by default `kind`
    layers: int = 2
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    intermediate: int = 256
    vocabulary: int = 300
    rotation: str = "halves"
    window: int = 0
    cache: str = "float16"
    page: int = PAGE
    length: int = 64
    requests: int = 8
    tokens: int = 48  # of a step
    is_tied: bool = False
    chooser: str = "argmax"
    selects_early: bool = True  # before the last layer's MLP, as models do; else behind it

    def program(self):
        """Return the program and its tensors."""
        return _Assembly(self).assembled()


def stored(values, kind):
    """Return float32 values in the bytes of a type."""
    if kind == "f32":
        return values
    if kind == "bf16":  # rounded to nearest, ties to even
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return FORMATS[kind].quantize(values.view(np.uint8), FORMATS["f32"], values.shape[1])


class _Assembly:
    def __init__(self, llama):
        self.llama, self.draw, self.tensors = llama, np.random.default_rng(1), {}
        pages = llama.requests * -(-llama.length // llama.page)
        self.builder = Builder(
            Limits(
                max_requests=llama.requests,
                max_tokens=llama.tokens,
                max_selected=llama.tokens,
                max_seq_length=llama.length,
                page_size=llama.page,
                num_pages=pages,
            )
        )

    def tensor(self, name, values, kind):
        self.tensors[name] = stored(values.astype(np.float32), kind)
        return self.builder.tensor(name, Tensor(kind, values.shape, {"attached": True}))

    def matrix(self, name, rows, columns, kind=None):
        values = self.draw.standard_normal((rows, columns)) * columns**-0.5
        return self.tensor(name, values, kind or self.llama.kind)

    def norm(self, name):
        values = 1 + 0.1 * self.draw.standard_normal(self.llama.hidden)
        return self.tensor(name, values, "f32")

    def assembled(self):
        llama, add = self.llama, self.builder.add
        kind = llama.head_kind or llama.kind
        table = self.matrix("table", llama.vocabulary, llama.hidden, kind)
        pairs = llama.head_size // 2
        angles = np.arange(llama.length)[:, None] * 10000.0 ** (-np.arange(pairs) / pairs)
        self.tensor("cos", np.cos(angles), "f32")
        self.tensor("sin", np.sin(angles), "f32")
        x = add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
        for layer in range(llama.layers):
            x, is_last = self.attention(x, layer), layer + 1 == llama.layers
            if is_last and llama.selects_early:
                x = add("select", {"x": x}, output="selected")
            x = self.mlp(x, layer)
        if not llama.selects_early:
            x = add("select", {"x": x}, output="selected")
        if not llama.is_tied:
            table = self.matrix("head", llama.vocabulary, llama.hidden, kind)
        self.normed(x, "norm", table, "logits")
        add(llama.chooser, {"x": "logits"}, output="next")
        return self.builder.program(["logits", "next"]), self.tensors

    def attention(self, x, i):
        llama, add = self.llama, self.builder.add
        heads, kv_heads, size = llama.heads, llama.kv_heads, llama.head_size
        rows = {"q": heads * size, "k": kv_heads * size, "v": kv_heads * size}
        weight = [self.matrix(f"{i}.{n}", r, llama.hidden) for n, r in rows.items()]
        qkv = self.normed(x, f"{i}.attention_norm", weight, f"{i}.qkv")
        attributes = {
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_size": size,
            "scale": size**-0.5,
            "window": llama.window,
            "soft_cap": 0.0,
            "rotation": llama.rotation,
            "eps": 1e-5,
            "cache": self.builder.cache(f"{i}.cache", Cache(kv_heads, size, llama.cache, True)),
        }
        tables = {"cos": "cos", "sin": "sin"}
        attended = add("attention", {"qkv": qkv}, tables, attributes, output=f"{i}.attended")
        return self.added(
            attended, self.matrix(f"{i}.o", llama.hidden, heads * size), x, f"{i}.sum"
        )

    def normed(self, x, norm, weight, output):
        """Add a product of a norm."""
        norm = self.norm(norm)
        add = self.builder.add
        x = add("rms_norm", {"x": x}, {"weight": norm}, {"eps": 1e-5}, output=f"{output}.norm")
        return add("linear", {"x": x}, {"weight": weight}, output=output)

    def added(self, x, weight, residual, output):
        """Add a product and a residual."""
        add = self.builder.add
        product = add("linear", {"x": x}, {"weight": weight}, output=f"{output}.product")
        return add("add", {"a": product, "b": residual}, output=output)

    def mlp(self, x, i):
        llama, add = self.llama, self.builder.add
        weight = [
            self.matrix(f"{i}.{name}", llama.intermediate, llama.hidden) for name in ("gate", "up")
        ]
        gate_up = self.normed(x, f"{i}.mlp_norm", weight, f"{i}.gate_up")
        hidden = add("silu_mul", {"x": gate_up}, output=f"{i}.hidden")
        down = self.matrix(f"{i}.down", llama.hidden, llama.intermediate)
        return self.added(hidden, down, x, f"{i}.output")


def fill(executable, tokens, positions, slots, selected):
    """Fill the arrays of a step; the pages of a slot are its own."""
    arrays = executable.arrays
    given = {"tokens": tokens, "positions": positions, "slots": slots, "selected": selected}
    for name, values in given.items():
        arrays[name][: len(values)] = values
    pages = arrays["page_table"]
    pages[:] = np.arange(pages.size).reshape(pages.shape)[:, ::-1]


def answers(executable, prompts, chunks=None, num_steps=3):
    """Return for each prompt the tokens that follow, and the logits of the first and the last.

    All prompts have one length. They are read in chunks of so many tokens, in one step by default.
    """
    count, length = len(prompts), len(prompts[0])
    at = 0
    for size in chunks or [length]:
        places = [(s, p) for s in range(count) for p in range(at, at + size)]
        slots, positions = zip(*places, strict=True)
        tokens = [prompts[slot][position] for slot, position in places]
        fill(executable, tokens, positions, slots, range(size - 1, count * size, size))
        executable.run(count * size, count)
        at += size
    arrays, slots = executable.arrays, range(count)
    logits, tokens = [arrays["logits"][:count].copy()], [arrays["next"][:count, 0].copy()]
    fill(executable, tokens[0], [length] * count, slots, slots)
    tokens += [*executable.run_steps(count, num_steps, "next", [[]] * count)]
    logits.append(arrays["logits"][:count].copy())
    return [
        ([int(each[slot]) for each in tokens], np.stack([each[slot] for each in logits]))
        for slot in slots
    ]


def check_answers(found, right, bound):
    """Check that the tokens are the right ones, and logits no further from the right ones."""
    check_errors([logits for _, logits in found], [logits for _, logits in right], bound)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in right]
