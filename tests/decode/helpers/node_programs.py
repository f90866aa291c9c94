"""Small programs for tests: one node of a sample, with random weights and inputs."""

import gguf
import numpy as np

from tensor_ops_decode.kinds.kind import StatePerRequest
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Limits, Node, State, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.combined_nodes import nodes_of
from tensor_ops_decode.weights.formats import FORMATS

TOKENS = 9
LIMITS = Limits(2, TOKENS, TOKENS, 64, 4, 24)
# Weights that every executor has as float32.
PLAIN = ("cos", "sin", "tokens")
TYPES = tuple(FORMATS)
# What gguf cannot quantize to: where the half-precision numbers of a block are, and about how large
# the other factors of a weight are.
READ_ONLY = {
    "q2_K": ((80, 82), 12),
    "q3_K": ((108,), 30),
    "q4_K": ((0, 2), 330),
    "q5_K": ((0, 2), 330),
    "q6_K": ((208,), 330),
    "iq2_xxs": ((0,), 50),
    "iq2_xs": ((0,), 50),
    "iq2_s": ((0,), 50),
    "iq3_xxs": ((0,), 140),
    "iq3_s": ((0,), 160),
    "iq4_nl": ((0,), 65),
    "iq4_xs": ((0,), 1200),
    "nvfp4": ((), 5),
    "f8_e4m3": ((), 120),
    "q4_zp": ((0,), 7),
}


def stored(values, kind):
    """Return float32 values in the bytes of a type."""
    if kind == "f32":
        return values.astype(np.float32)
    if values.ndim > 2:
        rows = stored(values.reshape(-1, values.shape[-1]), kind)
        return rows.reshape(*values.shape[:-1], -1)
    if kind in READ_ONLY:
        return random_blocks(values, kind)
    quantized = gguf.quants.quantize(
        values.astype(np.float32), gguf.GGMLQuantizationType[kind.upper()]
    )
    return np.ascontiguousarray(quantized)


def random_blocks(values, kind):
    """Return random rows of a type, of the magnitude of given values and seeded by them."""
    draw, form = np.random.default_rng(values.view(np.uint64).ravel()[:8]), FORMATS[kind]
    shape = (len(values), values.shape[1] // form.block_size, form.block_bytes)
    blocks = draw.integers(0, 256, shape, np.uint8)
    halves, factor = READ_ONLY[kind]
    scale = values.std() / factor
    for at in halves:
        numbers = (scale * draw.standard_normal((*shape[:2], 1))).astype(np.float16)
        blocks[:, :, at : at + 2] = numbers.view(np.uint8)
    if kind == "nvfp4":  # scales of E4M3, of one exponent and any bits below
        exponent = np.uint8(np.floor(np.log2(2 * scale)) + 7)
        blocks[:, :, :4] = blocks[:, :, :4] & 7 | exponent << 3
    elif kind == "f8_e4m3":
        blocks[blocks & 127 == 127] = 0  # NaN
        numbers = (scale * draw.standard_normal((*shape[:2], 1))).astype(np.float32)
        blocks[:, :, :4] = numbers.view(np.uint8)
    elif kind == "q4_zp":
        blocks[:, :, 2] &= 15
    return blocks.reshape(len(values), -1)


def holds(kind, columns):
    """Say whether a type can hold rows of so many columns."""
    return columns % FORMATS[kind].block_size == 0


def node_program(kind, sample, weight_type="f32", cache_dtype="float32", paged=True, seed=0):
    """Return a program of one node, or of those that it stands for, and its tensors.

    Each input is looked up in a table, integers that choose are those of random scores.
    """
    draw = np.random.default_rng([seed, *map(ord, kind + sample.name)])
    builder, tensors = Builder(LIMITS), {}

    def tensor(name, shape, type_):
        tensors[name] = stored(draw.standard_normal(shape), type_)
        return builder.tensor(name, Tensor(type_, tuple(shape), {"attached": True}))

    inputs = {}
    for slot, columns in sample.columns.items():
        if slot == "tokens":
            inputs[slot] = "tokens"
            continue
        chooses = slot == "chosen"
        size = sample.weights["weight"][0][0] if chooses else columns
        table = tensor(f"table.{slot}", (TOKENS, size), "f32")
        inputs[slot] = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output=slot)
        if chooses:
            inputs[slot] = chosen(builder, slot, columns)
    weights = {
        slot: tuple(
            tensor(f"{slot}.{i}", shape, weight_type if slot == "weight" else "f32")
            for i, shape in enumerate(shapes)
        )
        for slot, shapes in sample.weights.items()
    }
    attributes = dict(sample.attributes)
    if sample.cache is not None:
        has_state = isinstance(KINDS[kind].cache, StatePerRequest)
        if has_state:
            cache = State(*sample.cache)
        else:
            heads, keys, *values = sample.cache
            cache = Cache(heads, keys, cache_dtype, paged, *values)
        attributes["cache"] = builder.cache("cache", cache)
        if not KINDS[kind].writes_cache:
            store(builder, tensor, attributes)
    slots = [slot.name for slot in KINDS[kind].outputs] if kind in KINDS else ["output"]
    outputs = dict(zip(slots, ("output", *slots[1:]), strict=True))
    node = Node(kind, "output", inputs, weights, outputs, attributes)
    builder.add_nodes(nodes_of(node, builder.names))
    return builder.program(outputs.values()), tensors


def store(builder, tensor, attributes):
    """Let attention store keys and values for a node that only reads them."""
    sizes = [attributes[name] for name in ("num_heads", "num_kv_heads", "head_size")]
    columns = (sizes[0] + 2 * sizes[1]) * sizes[2]
    table = {"weight": tensor("table.stored", (TOKENS, columns), "f32")}
    qkv = builder.add("embed", {"tokens": "tokens"}, table, output="stored.qkv")
    builder.add("attention", {"qkv": qkv}, None, attributes, output="stored")


def chosen(builder, scores, count):
    """Return the numbers of the largest scores."""
    outputs = {"weights": f"{scores}.weights", "chosen": f"{scores}.numbers"}
    attributes = KINDS["route"].samples[0].attributes | {"top_k": count}
    builder.add("route", {"x": scores}, None, attributes, output=outputs)
    return outputs["chosen"]


def fill_step(arrays, tokens=TOKENS, *, slot=0, first=0, selected=None):
    """Write a step of one request into the arrays of an executable."""
    arrays["tokens"][:tokens] = (np.arange(tokens) + first) % 5
    arrays["positions"][:tokens] = np.arange(tokens) + first
    arrays["slots"][:tokens] = slot
    # The pages of a request lie in no order.
    pages = arrays["page_table"].shape[1]
    arrays["page_table"][slot] = (np.arange(pages)[::-1] + 3 * slot) % LIMITS.num_pages
    selected = range(tokens) if selected is None else selected
    arrays["selected"][: len(selected)] = selected
    arrays["temperature"][slot], arrays["seed"][slot] = 0.9, 1234567890123
    arrays["top_k"][slot], arrays["top_p"][slot], arrays["min_p"][slot] = 200, 0.95, 0.01
    edits = slice(0, 30)
    arrays["num_edits"][slot] = 30
    arrays["edited_tokens"][slot, edits] = np.arange(30) * 11
    arrays["edit_biases"][slot, edits] = np.where(np.arange(30) % 7, 0.3, -np.inf)
    arrays["edit_penalties"][slot, edits] = 1.4
