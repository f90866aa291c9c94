"""The bytes that a step reads, as `PersistentKernel.explain` states them."""

import json

import pytest

from tensor_ops import PersistentKernel
from tensor_ops_decode import Builder, Cache, Limits, Tensor
from tensor_ops_decode.program.step_reads import StepReads, cache_bytes_read, weight_bytes_read

LENGTH, WINDOW = 40, 8


@pytest.fixture
def program():
    """One table for embeddings and logits, two layers of attention, one of them with a window."""
    builder = Builder(Limits(1, 1, 1, LENGTH, 16, 3))
    builder.tensor("table", Tensor("q8_0", (10, 64), {"attached": True}))
    builder.tensor("norm", Tensor("f32", (64,), {"attached": True}))
    builder.tensor("qkv", Tensor("q4_0", (96, 64), {"attached": True}))
    builder.tensor("cos", Tensor("f32", (LENGTH, 4), {"attached": True}))
    builder.tensor("sin", Tensor("f32", (LENGTH, 4), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    for name, window, dtype in (("all", 0, "float16"), ("last", WINDOW, "float32")):
        qkv = builder.add("linear", {"x": x}, {"weight": "qkv"}, output=f"qkv_{name}")
        cache = builder.cache(name, Cache(2, 16, dtype, paged=True))
        sizes = {"num_heads": 2, "num_kv_heads": 2, "head_size": 16, "cache": cache}
        how = {"scale": 0.25, "window": window, "soft_cap": 0.0, "rotation": "halves", "eps": 1e-6}
        tables = {"cos": "cos", "sin": "sin"}
        attended = builder.add("attention", {"qkv": qkv}, tables, sizes | how, output=name)
        weights = {"weight": "half"}
        if name == "all":
            builder.tensor("half", Tensor("f16", (64, 32), {"attached": True}))
        product = builder.add("linear", {"x": attended}, weights, output=f"o_{name}")
        x = builder.add("add", {"a": product, "b": x}, output=f"x_{name}")
    last = builder.add("select", {"x": x}, output="selected")
    builder.add("rms_norm", {"x": last}, {"weight": "norm"}, {"eps": 1e-6}, output="normed")
    builder.add("linear", {"x": "normed"}, {"weight": "table"}, output="logits")
    builder.add("argmax", {"x": "logits"}, output="next")
    return builder.program(["logits", "next"])


def test_a_token_reads_every_matrix_whole_and_one_row_of_a_table(program):
    q8_0, q4_0 = 64 // 32 * 34, 64 // 32 * 18
    assert StepReads.of(program).weights == {
        "embed": {"q8_0": q8_0},
        "linear": {"q4_0": 2 * 96 * q4_0, "f16": 2 * 64 * 32 * 2, "q8_0": 10 * q8_0},
        "attention": {"f32": 2 * 2 * 4 * 4},
        "rms_norm": {"f32": 64 * 4},
    }
    selecting = next(node for node in program.nodes if node.kind == "select")
    assert weight_bytes_read(program, selecting) == {}


def test_caches_are_read_up_to_the_window(program):
    reads = StepReads.of(program)
    half, full = 2 * 2 * 16 * 2, 2 * 2 * 16 * 4
    assert reads.cache_per_token == half + full
    assert (reads.context, reads.caches) == (LENGTH, LENGTH * half + WINDOW * full)
    of_nodes = [cache_bytes_read(program, node, 9) for node in program.nodes]
    assert [size for size in of_nodes if size] == [9 * half, WINDOW * full]


def test_the_shares_are_printed_the_largest_first(program):
    assert str(StepReads.of(program)) == (
        "0.0 MiB of weights (linear f16 50.7%, linear q4_0 42.7%, linear q8_0 4.2%, "
        "rms_norm f32 1.6%, embed q8_0 0.4%, attention f32 0.4%), and 0.4 KiB of caches for "
        "each token so far: 0.0 MiB at 40 tokens, 31% of all"
    )


def test_a_kernel_says_what_it_reads_once_its_program_is_known():
    with PersistentKernel(backend="python", max_seq_length=64) as kernel:
        assert kernel.explain().reads is None
        assert "reads" not in str(kernel.explain())
        kernel.compile()
        explanation = kernel.explain()
    assert explanation.reads == StepReads.of(kernel.program)
    assert str(explanation).splitlines()[-1] == f"  a step of one token reads {explanation.reads}"
    plain = explanation.as_dict()["reads"]
    assert json.loads(json.dumps(plain)) == plain
    assert plain["weights"]["embed"] == {"bf16": 64 * 2}
