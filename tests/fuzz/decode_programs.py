"""Decode programs with any part changed: a ValueError, or an executable whose steps run."""

import copy
import json

import numpy as np
from changes import change
from choices import Choices

import tensor_ops_cpp
from tensor_ops_decode.program import Cache, Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["RUNS", "try_input"]

RUNS = 1000  # of test_found.py
SEEDS = [bytes([0]), bytes([1, 9, 4]), bytes([2, 60, 3, 7]), bytes([255, 4, 40, 90])]
DAMAGE = [b"\xff", b"\xed\xa0\x80", b"\0", b"[" * 70, b'{"a":1,"a":2}', b"\\ud800", b"1e999", b"-"]
LIMITS = Limits(2, 5, 3, 24, 4, 12)
# A tensor of more elements is given too short, which is to be noticed.
MOST_ELEMENTS = 1 << 16


def _weights(builder, *slots):
    """Attach a tensor for each slot, with its type and shape."""
    given = {}
    for slot, kind, *shape in slots:
        name = f"{slot}.{len(builder.program([]).tensors)}"
        given[slot] = builder.tensor(name, Tensor(kind, tuple(shape), {"attached": True}))
    return given


def _program(weight_type):
    """Return a program with a node of every kind, some weights of which are of a type."""
    builder, hidden = Builder(LIMITS), max(FORMATS[weight_type].block_size, 32)

    def add(kind, inputs, slots=(), output="", **attributes):
        weights = _weights(builder, *slots)
        return builder.add(kind, inputs, weights, attributes, output=output or kind)

    add("embed", {"tokens": "tokens"}, [("weight", weight_type, 40, hidden)])
    add("rms_norm", {"x": "embed"}, [("weight", "f32", hidden)], "normed", eps=1e-5)
    slots = [("weight", weight_type, 32, hidden), ("bias", "f32", 32)]
    add("linear", {"x": "normed"}, slots, "qkv")
    tables = [("cos", "f32", 24, 3), ("sin", "f32", 24, 3)]
    norms = [("q_norm", "f32", 8), ("k_norm", "f32", 8)]
    attention = {"num_heads": 2, "num_kv_heads": 1, "head_size": 8, "scale": 0.4, "eps": 1e-6}
    attention |= {"window": 7, "soft_cap": 9.0, "rotation": "interleaved"}
    cache = builder.cache("paged", Cache(1, 8, "float16", True))
    inputs = {"qkv": "qkv"}
    add("attention", inputs, tables + norms, "heads", **attention, cache=cache)
    cache = builder.cache("contiguous", Cache(1, 8, "float32", False))
    attention |= {"window": 0, "rotation": "halves", "soft_cap": 0.0}
    add("attention", inputs, tables, "more heads", **attention, cache=cache)
    add("add", {"a": "heads", "b": "more heads"})
    add("linear", {"x": "add"}, [("weight", "f32", hidden, 16)])
    add("add", {"a": "linear", "b": "embed"}, output="attended")
    add("rms_norm", {"x": "attended"}, [("weight", "bf16", hidden)], eps=1e-5)
    add(
        "layer_norm",
        {"x": "rms_norm"},
        [("weight", "f32", hidden), ("bias", "f16", hidden)],
        eps=0.0,
    )
    add("silu_mul", {"x": "layer_norm"}, output="hidden")
    add("linear", {"x": "hidden"}, [("weight", "f32", hidden, hidden // 2)], "down")
    add("add", {"a": "down", "b": "attended"}, output="mlp")
    add("silu_mul", {"x": "mlp"})
    add("gelu_mul", {"x": "attended"}, approximate="tanh")
    add("select", {"x": "gelu_mul"})
    add("scale", {"x": "select"}, factor=-1.7)
    add("soft_cap", {"x": "scale"}, cap=3.0)
    add("allreduce", {"x": "soft_cap"})
    add("argmax", {"x": "allreduce"})
    add("sample", {"x": "soft_cap"})
    add("sample", {"x": "silu_mul"}, output="of all tokens")
    outputs = ["allreduce", "argmax", "sample", "of all tokens"]
    return json.loads(builder.program(outputs).to_json())


def _version_1(program):
    """Return the program as version 1 had it, with one node in the place of several."""
    nodes = {node["name"]: node for node in copy.deepcopy(program["nodes"])}
    norm, hidden = nodes.pop("normed"), nodes.pop("hidden")
    nodes["qkv"] |= {
        "kind": "rms_norm_linear",
        **{key: norm[key] for key in ("inputs", "attributes")},
    }
    nodes["qkv"]["weights"]["norm"] = norm["weights"]["weight"]
    kinds = {"attended": "linear", "mlp": "silu_mul_linear_with_residual"}
    for name, product, x in (("attended", "linear", "add"), ("mlp", "down", hidden["inputs"]["x"])):
        inputs = {"x": x, "residual": nodes[name]["inputs"]["b"]}
        weights = nodes.pop(product)["weights"]
        nodes[name] |= {"kind": kinds[name], "inputs": inputs, "weights": weights}
    inner = ("normed", "hidden", "down", "linear")
    values = {name: each for name, each in program["values"].items() if name not in inner}
    return program | {"version": 1, "nodes": list(nodes.values()), "values": values}


PROGRAMS = [_program(name) for name in FORMATS]
PROGRAMS += map(_version_1, PROGRAMS[:2])


def try_input(data):
    choices = Choices(data)
    program = copy.deepcopy(choices.pick(PROGRAMS))
    for _ in range(choices.below(4)):
        change(program, choices)
    text = json.dumps(program).encode()
    if choices.rarely():
        place = choices.below(1 << 16) % len(text)
        text = text[:place] + choices.pick(DAMAGE) + text[place + choices.below(4) :]
    reason = tensor_ops_cpp.supports_program(text)
    made, message = _compile(text, _tensors(program, choices), choices)
    if made is None:
        assert reason in (None, message), (reason, message)
        return
    assert reason is None, reason
    for _ in range(3):
        _try_step(made, choices)
    made.close()


def _compile(text, tensors, choices):
    """Return an executable, or None and why there is none."""
    options = {"activations": choices.pick(["int8x2", "int8", "bfloat16", "float32"])}
    workers = 1 + choices.below(3)
    try:
        made = tensor_ops_cpp.compile_program(text, tensors, num_workers=workers, options=options)
    except ValueError as error:
        return None, str(error)
    except MemoryError as error:
        message = str(error)
        assert "bytes" in message, message
        return None, message
    return made, None


def _tensors(program, choices):
    """Return bytes for the tensors that a program, which may be none, declares."""
    declared = program.get("tensors")
    draw = np.random.default_rng(choices.byte())
    tensors = {}
    for name, tensor in declared.items() if isinstance(declared, dict) else ():
        try:
            rows, columns = ([1] + tensor["shape"])[-2:]
            elements = rows * columns
            format_ = FORMATS[tensor["type"]]
            size = rows * (columns // format_.block_size) * format_.block_bytes
        except (TypeError, KeyError, IndexError, ValueError):
            continue
        if not isinstance(size, int) or size < 1 or elements > MOST_ELEMENTS:
            size = 64
        tensors[name] = draw.integers(0, 256, size - choices.rarely(), np.uint8)
    return tensors


def _try_step(made, choices):
    arrays = made.arrays
    tokens, selected = choices.below(6), choices.below(4)
    for name in ("tokens", "page_table", "top_k", "edited_tokens"):
        flat = arrays[name].reshape(-1)[:64]
        flat[:] = [choices.below(12) for _ in flat]
    slots, first = choices.below(2), choices.below(20)
    arrays["slots"][:tokens] = slots
    arrays["positions"][:tokens] = (first + np.arange(tokens))[: len(arrays["positions"])]
    arrays["selected"][:selected] = np.arange(selected)[: len(arrays["selected"])]
    for name in ("temperature", "top_p", "min_p"):
        arrays[name][:4] = choices.byte() / 255
    arrays["seed"][:4] = choices.byte()
    arrays["num_edits"][:4], arrays["edit_penalties"][:4] = choices.below(12), 1.5
    if choices.below(4) == 0:
        name = choices.pick(sorted(arrays))
        flat = arrays[name].reshape(-1)[:8]
        numbers = [-1, 3, 23, 24, 2**31 - 1, -(2**31), 0.5, 1e38, np.nan, np.inf]
        with np.errstate(all="ignore"):
            flat[choices.below(len(flat))] = np.float64(choices.pick(numbers)).astype(flat.dtype)
    try:
        made.run(tokens, selected)
        if choices.below(2):
            output = choices.pick(["argmax", "sample", "of all tokens"])
            ends = [[choices.below(12)] for _ in range(selected)]
            made.run_steps(selected, choices.below(8), output, ends)
    except ValueError as error:
        message = str(error)
        assert message.startswith(("run: ", "run_steps: ")), message
        return
    for name, rows in (("argmax", selected), ("sample", selected), ("of all tokens", tokens)):
        if name in arrays and arrays[name].dtype == np.int32:
            # -1 is for a row with NaN, or with nothing but minus infinity.
            assert np.all((arrays[name][:rows] >= -1) & (arrays[name][:rows] < 1 << 20))
