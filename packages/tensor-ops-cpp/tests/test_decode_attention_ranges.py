"""Attention to more ranges of positions than are added up at once."""

import numpy as np

import tensor_ops_cpp
from tensor_ops_decode.program import Cache, Limits, Tensor
from tensor_ops_decode.program.builder import Builder

TOKENS, POSITIONS, PAGE = 1000, 17_000, 16
HEADS, KV_HEADS, SIZE, SCALE = 8, 4, 20, 0.7
LIMITS = Limits(1, TOKENS, 1, POSITIONS, PAGE, -(-POSITIONS // PAGE))


def long_program():
    """Return a program that stores what all tokens keep, and one of whose tokens attends to it."""
    draw = np.random.default_rng(3)
    builder, tensors = Builder(LIMITS), {}
    sizes = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_size": SIZE, "scale": SCALE}
    sizes |= {"window": 0, "soft_cap": 0.0, "rotation": "halves", "eps": 0.0}
    sizes["cache"] = builder.cache("cache", Cache(KV_HEADS, SIZE, "float32", True))

    def look_up(name, heads):
        tensors[name] = draw.standard_normal((TOKENS, heads * SIZE), np.float32)
        table = builder.tensor(name, Tensor("f32", tensors[name].shape, {"attached": True}))
        return builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output=f"{name}.rows")

    qkv = look_up("qkv", HEADS + 2 * KV_HEADS)
    builder.add("attention", {"qkv": qkv}, None, sizes | {"window": 1}, output="stored")
    last = builder.add("select", {"x": look_up("q", HEADS)}, output="last")
    builder.add("shared_attention", {"q": last}, None, sizes, output="output")
    return builder.program(["output"]), tensors


def output(program, tensors, num_workers):
    """Return what the last of all positions gives."""
    executable = tensor_ops_cpp.compile_program(program.to_json(), tensors, num_workers=num_workers)
    arrays = executable.arrays
    arrays["tokens"][:] = np.arange(TOKENS)
    arrays["selected"][:] = TOKENS - 1
    arrays["page_table"][:] = np.arange(LIMITS.num_pages)
    for first in range(0, POSITIONS, TOKENS):
        arrays["positions"][:] = first + np.arange(TOKENS)
        executable.run(TOKENS, 1)
    found = arrays["output"][0].copy()
    executable.close()
    return found


def expected_and_bound(tensors):
    """Return the result, and the error that `attention` states beside its formula."""
    unit = 2.0**-24
    q = tensors["q"][-1].astype(np.float64).reshape(KV_HEADS, -1, SIZE)
    kept = tensors["qkv"][:, HEADS * SIZE :].astype(np.float64)
    keys, values = kept.reshape(TOKENS, 2, KV_HEADS, SIZE).transpose(1, 2, 0, 3)
    scores = SCALE * q @ keys.transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    magnitudes = SCALE * np.abs(q) @ np.abs(keys.transpose(0, 2, 1))
    error = (4 * SIZE**0.5 + 26) * unit * magnitudes.max(-1, keepdims=True)
    relative = 2 * error + (4 * POSITIONS**0.5 + 16) * unit
    return (weights @ values).ravel(), (weights @ np.abs(values) * relative).ravel()


def test_results_do_not_depend_on_how_threads_divide_positions():
    program, tensors = long_program()
    # One thread adds up the ranges of a head as it computes them; of several, one adds up all.
    alone, *divided = (output(program, tensors, count) for count in (1, 2, 5))
    for found in divided:
        np.testing.assert_array_equal(found, alone)
    expected, bound = expected_and_bound(tensors)
    assert np.all(np.abs(alone - expected) <= bound)
