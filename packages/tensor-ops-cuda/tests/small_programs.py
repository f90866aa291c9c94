"""Small decode programs of any nodes, and steps of them on two executors."""

import numpy as np
from largest_errors import SUMS_BOUND, check_errors
from random_llama import stored

from tensor_ops_decode import Builder, Limits, Tensor, reference
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache

COLUMNS, WORDS, LENGTH = 64, 30, 40
HEADS, KV_HEADS, SIZE = 4, 2, 16
QKV = (HEADS + 2 * KV_HEADS) * SIZE
GATES = 96
PRODUCTS = [
    kind
    for kind in KINDS.values()
    if kind.role == "product" and {slot.form for slot in kind.weights} == {"matrices", "biases"}
]
# Slots, positions and selected rows of each step. One step has more tokens than run together, and
# one selects none.
STEPS = [
    ([0] * 5 + [1] * 6, [*range(5), *range(6)], [4, 10]),
    ([1, 0, 2], [6, 5, 0], []),
    ([0, 1, 2], [6, 7, 1], [0, 1, 2]),
    ([0] * 9, range(7, 16), [0, 3, 8]),
]
# Steps of few tokens, of which each block prepares all activations by itself.
FEW_TOKENS = [([0, 1, 2], [position] * 3, [0, 2]) for position in range(8)]


class Assembly:
    """A program whose nodes are added one by one; the value "x" has the embeddings of tokens."""

    def __init__(self, seed=1, page=4, length=LENGTH):
        self.tensors, self.draw, self.length = {}, np.random.default_rng(seed), length
        self.builder = Builder(Limits(3, 12, 12, length, page, 3 * -(-length // page)))
        self.add("embed", "x", {"tokens": "tokens"}, weight=self.matrix("table", WORDS))

    def add(self, kind, output, inputs, attributes=None, **weights):
        return self.builder.add(kind, inputs, weights, attributes, output=output)

    def tensor(self, name, values, kind="f32"):
        self.tensors[name] = stored(np.ascontiguousarray(values, dtype=np.float32), kind)
        return self.builder.tensor(name, Tensor(kind, values.shape, {"attached": True}))

    def matrix(self, name, rows, columns=COLUMNS, kind="bf16"):
        values = self.draw.standard_normal((rows, columns)) * columns**-0.5
        return self.tensor(name, values, kind)

    def linear(self, output, x, weight=None, residual=None):
        weight = weight or self.matrix(f"{output}.weight", COLUMNS)
        if residual is None:
            return self.product(output, x, weight)
        product = self.product(f"{output}.product", x, weight)
        return self.add("add", output, {"a": product, "b": residual})

    def product(self, output, x, weight):
        """Add a product; their kinds take turns, if there are more than ``linear``."""
        kind = PRODUCTS[len(self.builder.nodes) % len(PRODUCTS)]
        return self.add(kind.name, output, {"x": x}, kind.samples[0].attributes, weight=weight)

    def normed(self, output, x, norm, weight, eps=1e-5):
        """Add a product of a norm."""
        norm = self.add("rms_norm", f"{output}.norm", {"x": x}, {"eps": eps}, weight=norm)
        return self.product(output, norm, weight)

    def qkv(self, output, x="x"):
        return self.linear(output, x, self.matrix(f"{output}.weight", QKV))

    def attention(self, output, qkv, *, heads=HEADS, kv_heads=KV_HEADS, size=SIZE, **given):
        """Add attention; `given` are attributes, `dtype`, `paged` and the rotated `pairs`."""
        pairs = given.pop("pairs", size // 2)
        tables = {}
        if pairs:
            angles = np.arange(self.length)[:, None] * 100.0 ** (-np.arange(pairs) / pairs)
            tables["cos"] = self.tensor(f"{output}.cos", np.cos(angles))
            tables["sin"] = self.tensor(f"{output}.sin", np.sin(angles))
        for name in ("query_scale", "sinks", "v_norm"):
            if name in given:
                tables[name] = given.pop(name)
        dtype, paged = given.pop("dtype", "float32"), given.pop("paged", True)
        cache = self.builder.cache(f"{output}.cache", Cache(kv_heads, size, dtype, paged))
        attributes = {
            "num_heads": heads, "num_kv_heads": kv_heads, "head_size": size, "scale": size**-0.5,
            "window": 0, "soft_cap": 0.0, "rotation": "halves", "eps": 1e-5, "cache": cache,
        }  # fmt: skip
        return self.add("attention", output, {"qkv": qkv}, attributes | given, **tables)

    def gated(self, output, x="x", residual="x", gate_residual=None):
        up = self.matrix(f"{output}.up", 2 * GATES)
        self.linear(f"{output}.gates", x, up, gate_residual)
        down = self.matrix(f"{output}.down", COLUMNS, GATES)
        self.add("silu_mul", f"{output}.hidden", {"x": f"{output}.gates"})
        return self.linear(output, f"{output}.hidden", down, residual)

    def select(self, output, x):
        return self.add("select", output, {"x": x})


def outputs(executor, program, tensors, steps=STEPS, **options):
    """Return the rows of each output that each step has written."""
    executable = executor.compile_program(program.to_json(), tensors, **options)
    arrays, found = executable.arrays, []
    pages = arrays["page_table"]
    pages[:] = np.arange(pages.size).reshape(pages.shape)[:, ::-1]
    for slots, positions, selected in steps:
        count = len(slots)
        arrays["slots"][:count], arrays["positions"][:count] = slots, positions
        arrays["tokens"][:count] = 7 * np.arange(count) % WORDS
        arrays["selected"][: len(selected)] = selected
        executable.run(count, len(selected))
        for name in program.outputs:
            rows = count if program.values[name].rows == "tokens" else len(selected)
            found.append(arrays[name][:rows].copy())
    executable.close()
    return found


def assert_right(executor, build, steps=STEPS):
    """Check a program: `build` adds its nodes to an `Assembly`, and returns its outputs."""
    made = Assembly()
    program = made.builder.program(build(made))
    found = outputs(executor, program, made.tensors, steps, num_workers=2)
    right = outputs(reference, program, made.tensors, steps, options={"dtype": "float64"})
    # Weights are in bfloat16, with which activations are exact, and caches in float32.
    check_errors(found, right, SUMS_BOUND)
