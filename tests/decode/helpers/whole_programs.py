"""Programs for tests of what every executor refuses and takes, and random tensors for them."""

import dataclasses

import numpy as np

from tensor_ops_decode.program import Cache, Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.weights.formats import FORMATS

LIMITS = Limits(3, 8, 4, 32, 4, 12)
ATTENTION = {
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_size": 8,
    "scale": 0.5,
    "soft_cap": 0.0,
    "rotation": "halves",
    "eps": 1e-6,
}


def base_program(windows=(5, 3), *, paged=True, cache_dtypes=("float16", "int8"), page_size=4):
    """Return a program with nodes of all kinds."""
    builder = Builder(dataclasses.replace(LIMITS, page_size=page_size))

    def tensor(name, *shape, kind="f32"):
        builder.tensor(name, Tensor(kind, shape, {"attached": True}))

    tensor("table", 10, 32)
    tensor("norm", 32)
    tensor("matrix", 16, 32, kind="q8_0")
    tensor("bias", 16)
    tensor("head", 8)
    tensor("cos", 32, 2)
    tensor("sin", 32, 2)
    tensor("out", 32, 16)
    tensor("up", 64, 32)
    tensor("square", 32, 32)
    add, eps = builder.add, {"eps": 1e-5}
    add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    add("rms_norm", {"x": "x"}, {"weight": "norm"}, eps, output="normed")
    weights = {"weight": ["matrix", "matrix"], "bias": ["bias", "bias"]}
    add("linear", {"x": "normed"}, weights, output="qkv")
    for name, window, dtype in zip(("first", "second"), windows, cache_dtypes, strict=True):
        cache = builder.cache(f"cache of {name}", Cache(1, 8, dtype, paged))
        weights = {"cos": "cos", "sin": "sin", "q_norm": "head", "k_norm": "head"}
        attributes = {**ATTENTION, "window": window, "cache": cache}
        weights = weights if name == "first" else {}
        add("attention", {"qkv": "qkv"}, weights, attributes, output=name)
    weights = {"weight": "out", "bias": "norm"}
    add("linear", {"x": "first"}, weights, output="y.product")
    add("add", {"a": "y.product", "b": "x"}, output="y")
    add("linear", {"x": "second"}, {"weight": "out"}, output="z")
    add("add", {"a": "y", "b": "z"}, output="sum")
    add("allreduce", {"x": "sum"}, output="reduced")
    add("layer_norm", {"x": "reduced"}, {"weight": "norm", "bias": "norm"}, eps, output="layered")
    add("linear", {"x": "layered"}, {"weight": "up"}, output="wide")
    add("silu_mul", {"x": "wide"}, output="gated")
    add("linear", {"x": "gated"}, {"weight": "square"}, output="mlp.product")
    add("add", {"a": "mlp.product", "b": "y"}, output="mlp")
    add("gelu_mul", {"x": "wide"}, {}, {"approximate": "tanh"}, output="gelued")
    add("add", {"a": "gated", "b": "gelued"}, output="both")
    add("scale", {"x": "both"}, {}, {"factor": 0.5}, output="scaled")
    add("select", {"x": "scaled"}, output="last")
    add("linear", {"x": "last"}, {"weight": "table"}, output="raw")
    add("soft_cap", {"x": "raw"}, {}, {"cap": 30.0}, output="logits")
    add("argmax", {"x": "logits"}, output="largest")
    add("sample", {"x": "logits"}, output="next")
    return builder.program(["logits", "largest", "next"])


def llama_program(windows=(5, 3), *, paged=True, page_size=4):
    """Return a program with the nodes of a Llama alone, whose matrices are not in float32."""
    builder = Builder(dataclasses.replace(LIMITS, page_size=page_size))

    def tensor(name, *shape, kind="bf16"):
        builder.tensor(name, Tensor(kind, shape, {"attached": True}))

    tensor("table", 10, 32)
    tensor("norm", 32, kind="f32")
    tensor("matrix", 16, 32, kind="q8_0")
    tensor("cos", 32, 2, kind="f32")
    tensor("sin", 32, 2, kind="f32")
    tensor("out", 32, 16)
    tensor("up", 64, 32)
    tensor("square", 32, 32)
    add, norm, eps = builder.add, {"weight": "norm"}, {"eps": 1e-5}
    add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    residual = "x"
    layers = {"first": ("normed", "qkv", ["matrix", "matrix"], "y")}
    layers["second"] = "other normed", "other qkv", "square", "z"
    for window, (name, (normed, qkv, weight, output)) in zip(windows, layers.items(), strict=True):
        add("rms_norm", {"x": residual}, norm, eps, output=normed)
        add("linear", {"x": normed}, {"weight": weight}, output=qkv)
        cache = builder.cache(f"cache of {name}", Cache(1, 8, "float16", paged))
        attributes = {**ATTENTION, "window": window, "cache": cache}
        add("attention", {"qkv": qkv}, {"cos": "cos", "sin": "sin"}, attributes, output=name)
        add("linear", {"x": name}, {"weight": "out"}, output=f"{output}.product")
        residual = add("add", {"a": f"{output}.product", "b": residual}, output=output)
    add("rms_norm", {"x": "z"}, norm, eps, output="z normed")
    add("linear", {"x": "z normed"}, {"weight": "up"}, output="wide")
    add("silu_mul", {"x": "wide"}, output="gated")
    add("linear", {"x": "gated"}, {"weight": "square"}, output="mlp.product")
    add("add", {"a": "mlp.product", "b": "z"}, output="mlp")
    add("select", {"x": "mlp"}, output="last")
    add("rms_norm", {"x": "last"}, norm, eps, output="last normed")
    add("linear", {"x": "last normed"}, {"weight": "table"}, output="logits")
    add("sample", {"x": "logits"}, output="next")
    return builder.program(["logits", "next"])


def program_for(executor, *windows, **given):
    """Return the base program, or that of a Llama where an executor runs no other nodes."""
    windows = [windows] if windows else []
    whole = base_program(*windows, **given)
    runs_all = executor.supports_program(whole.to_json()) is None
    return whole if runs_all else llama_program(*windows, **given)


def tensors_of(program):
    """Return a program's tensors, of random numbers."""
    draw, tensors = np.random.default_rng(1), {}
    for name, tensor in program.tensors.items():
        numbers = draw.standard_normal(tensor.shape).astype(np.float32)
        if tensor.type == "bf16":
            numbers = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        elif tensor.type != "f32":
            kind, columns = FORMATS[tensor.type], tensor.shape[-1]
            numbers = kind.quantize(numbers.view(np.uint8), FORMATS["f32"], columns)
        tensors[name] = numbers
    return tensors
