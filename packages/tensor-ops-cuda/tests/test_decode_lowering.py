"""Programs beyond those of Llamas are refused by name, or have the results of the reference."""

import numpy as np
import pytest
from random_llama import Llama
from small_programs import COLUMNS, FEW_TOKENS, GATES, HEADS, QKV, SIZE, Assembly, assert_right

import tensor_ops_cuda
from tensor_ops_decode import KINDS, Tensor
from tensor_ops_decode.weights.formats import FORMATS

pytestmark = pytest.mark.usefixtures("device")


def matrix_twice_in_a_product(made):
    made.select("s", "x")
    made.add("linear", "y", {"x": "s"}, weight=["table", "table"])
    return ["y"]


def matrix_of_several_products(made):
    made.linear("y", "x", made.matrix("w", COLUMNS))
    made.linear("z", "y", "w")
    norm = made.tensor("norm", np.ones(COLUMNS))
    made.normed("v", "z", norm, "w", eps=0.0)
    return ["y", "v"]


def matrix_of_gates_and_of_another(made):
    made.gated("y")
    made.linear("z", "y", "y.up")
    return ["y", "z"]


def products_of_attention_after_another_qkv(made):
    made.qkv("q")
    made.attention("a", "q")
    made.qkv("p")
    made.linear("y", "a")
    made.attention("b", "p")
    made.linear("z", "b", residual="y")
    made.linear("v", "b")
    return ["y", "z", "v"]


def logits_that_nothing_chooses_from(made):
    made.select("s", "x")
    made.linear("y", "s")
    return ["x", "y"]


def logits_that_are_no_output(made):
    made.select("s", "x")
    made.linear("y", "s", made.matrix("head", 31))
    made.add("argmax", "next", {"x": "y"})
    return ["next"]


def two_tables(made):
    table = made.matrix("other", 30, kind="q8_0")
    made.add("embed", "e", {"tokens": "tokens"}, weight=table)
    made.linear("y", "e", residual="x")
    return ["y", "e"]


def sums_over_ranks(made):
    """A launch ends before each."""
    made.linear("y", "x")
    made.add("allreduce", "r", {"x": "y"})
    made.add("add", "z", {"a": "r", "b": "x"})
    made.add("allreduce", "q", {"x": "z"})
    made.linear("v", "q", residual="r")
    return ["z", "v"]


def gates_that_more_is_made_of(made):
    made.gated("y")
    made.linear("z", "y.hidden", made.matrix("w", COLUMNS, GATES))
    return ["z", "y.hidden"]


def silu_mul_between_two_products(made):
    made.linear("gates", "x", made.matrix("up", 2 * 480))
    made.add("silu_mul", "hidden", {"x": "gates"})
    made.linear("part", "hidden", made.matrix("down", COLUMNS, 480))
    made.add("allreduce", "r", {"x": "part"})
    made.add("add", "y", {"a": "r", "b": "x"})
    return ["y"]


def no_outputs(made):
    made.qkv("q")
    made.attention("a", "q")
    made.linear("y", "a")
    return []


RIGHT = [
    matrix_twice_in_a_product,
    matrix_of_several_products,
    matrix_of_gates_and_of_another,
    products_of_attention_after_another_qkv,
    logits_that_nothing_chooses_from,
    logits_that_are_no_output,
    two_tables,
    sums_over_ranks,
    gates_that_more_is_made_of,
    silu_mul_between_two_products,
    no_outputs,
]


def norm_that_two_products_read(made):
    norm = made.tensor("norm", np.ones(COLUMNS))
    made.normed("y", "x", norm, made.matrix("w", COLUMNS))
    made.linear("z", "y.norm", "w")
    return ["y", "z"]


def residual_that_is_attention_too(made):
    made.qkv("q")
    made.attention("a", "q")
    made.linear("y", "a", residual="a")
    return ["y"]


def two_attentions_to_one_qkv(made):
    made.qkv("q")
    for name in ("a", "b"):
        made.attention(name, "q")
        made.linear(f"{name}.y", name)
    return ["a.y", "b.y"]


def attention_after_another_qkv(made):
    for name in ("p", "q"):
        made.qkv(name)
    for name, qkv in (("a", "p"), ("b", "q")):
        made.attention(name, qkv)
        made.linear(f"{name}.y", name)
    return ["a.y", "b.y"]


def products_after_another_attention(made):
    for name in ("a", "b"):
        made.qkv(f"{name}.q")
        made.attention(name, f"{name}.q")
    made.linear("y", "a", residual="x")
    made.linear("z", "b", residual="y")
    return ["z"]


def qkv_that_a_product_reads(made):
    made.qkv("q")
    made.attention("a", "q")
    made.linear("y", "a")
    made.linear("z", "q", made.matrix("w", COLUMNS, QKV))
    return ["y", "z"]


def attention_that_is_an_output(made):
    made.qkv("q")
    return [made.attention("a", "q")]


def tokens_after_selected_rows(made):
    made.select("s", "x")
    made.linear("y", "s")
    made.linear("z", "x")
    return ["y", "z"]


def gates_that_are_an_output(made):
    made.gated("y")
    return ["y", "y.gates"]


def gates_of_two_nodes(made):
    made.gated("y")
    made.add("silu_mul", "again", {"x": "y.gates"})
    made.linear("z", "again", "y.down", residual="y")
    return ["z"]


def gates_with_a_residual(made):
    table = made.matrix("other", 30, 2 * GATES)
    made.add("embed", "e", {"tokens": "tokens"}, weight=table)
    made.gated("y", gate_residual="e")
    return ["y"]


def logits_that_more_is_made_of(made):
    made.select("s", "x")
    made.linear("y", "s")
    made.linear("z", "y")
    made.add("argmax", "next", {"x": "y"})
    return ["z", "next"]


def choice_from_all_tokens(made):
    made.linear("y", "x")
    made.add("argmax", "next", {"x": "y"})
    return ["next"]


def choice_from_the_table(made):
    made.select("s", "x")
    made.add("argmax", "next", {"x": "s"})
    return ["next"]


def gates_that_are_selected(made):
    made.linear("gates", "x", made.matrix("up", 2 * GATES))
    made.select("s", "gates")
    made.add("silu_mul", "hidden", {"x": "s"})
    made.linear("y", "hidden", made.matrix("down", COLUMNS, GATES))
    return ["y"]


def ranks_that_add_up_selected_rows(made):
    made.select("s", "x")
    return [made.add("allreduce", "y", {"x": "s"})]


def two_choices(made):
    made.select("s", "x")
    made.linear("y", "s")
    for name in ("a", "b"):
        made.add("argmax", name, {"x": "y"})
    return ["a", "b"]


def selected_rows_that_are_an_output(made):
    made.linear("y", "x")
    return [made.select("s", "y")]


def queries_that_are_scaled(made):
    qkv, scale = made.qkv("qkv"), made.tensor("scale", np.ones((made.length, 1)))
    made.linear("y", made.attention("a", qkv, query_scale=scale))
    return ["y"]


def sinks(made):
    qkv, scores = made.qkv("qkv"), made.tensor("scores", np.zeros(HEADS))
    made.linear("y", made.attention("a", qkv, sinks=scores))
    return ["y"]


def values_with_a_norm(made):
    qkv, ones = made.qkv("qkv"), made.tensor("ones", np.ones(SIZE))
    made.linear("y", made.attention("a", qkv, v_norm=ones))
    return ["y"]


REFUSED = {
    values_with_a_norm: "attention without norms of values",
    sinks: "attention without sinks",
    queries_that_are_scaled: "attention without a scale of queries by their positions",
    norm_that_two_products_read: "this kind where only a product reads it",
    residual_that_is_attention_too: "attention that only products multiply",
    two_attentions_to_one_qkv: "attention to a product that nothing else reads",
    attention_after_another_qkv: "attention before the next product that other attention reads",
    products_after_another_attention: "products of attention before the next attention",
    qkv_that_a_product_reads: "attention to a product that nothing else reads",
    attention_that_is_an_output: "attention that is no output",
    tokens_after_selected_rows: "nodes of all tokens before those of the selected ones",
    gates_that_are_an_output: "a product that nothing else reads has its gate and up",
    gates_of_two_nodes: "a product that nothing else reads has its gate and up",
    gates_with_a_residual: "a product that nothing else reads has its gate and up",
    logits_that_more_is_made_of: "as the last node, of the selected rows of the last product",
    choice_from_all_tokens: "as the last node, of the selected rows of the last product",
    choice_from_the_table: "selected rows that are only multiplied or added",
    gates_that_are_selected: "selected rows that are only multiplied or added",
    ranks_that_add_up_selected_rows: "selected rows that are only multiplied or added",
    two_choices: "as the last node, of the selected rows of the last product",
    selected_rows_that_are_an_output: "selected rows that are no output",
}


def name_of(build):
    return build.__name__.replace("_", " ")


@pytest.mark.parametrize("build", RIGHT, ids=name_of)
def test_what_is_run_is_right(build):
    assert_right(tensor_ops_cuda, build)


@pytest.mark.usefixtures("some_warp_is_behind")
@pytest.mark.parametrize("build", RIGHT, ids=name_of)
def test_values_last_until_the_slowest_warp_has_read_them(build):
    """Each block reads all of a value; one that is done with it writes the next one already."""
    assert_right(tensor_ops_cuda, build, FEW_TOKENS)


@pytest.mark.parametrize("build", REFUSED, ids=name_of)
def test_what_is_not_run_is_refused_by_name(build):
    made = Assembly()
    text = made.builder.program(build(made)).to_json()
    reason = tensor_ops_cuda.supports_program(text)
    assert REFUSED[build] in reason
    assert reason.startswith("node '")
    with pytest.raises(RuntimeError) as caught:
        tensor_ops_cuda.compile_program(text, made.tensors)
    assert str(caught.value) == reason


def test_latent_attention_is_refused_by_name():
    made = Assembly()
    stack = made.builder.tensor("stack", Tensor("bf16", (2, 16, 8), {"attached": True}))
    made.builder.add("head_linear", {"x": "x"}, {"weight": stack}, {"num_heads": 2}, output="y")
    reason = tensor_ops_cuda.supports_program(made.builder.program(["y"]).to_json())
    assert reason == "the cuda backend runs no nodes of the kind head_linear"


def test_experts_are_refused_by_name():
    made = Assembly()
    made.linear("logits", "x", made.matrix("router", 8))
    of = KINDS["route"].samples[0].attributes | {"top_k": 2}
    outputs = {"weights": "weights", "chosen": "chosen"}
    made.builder.add("route", {"x": "logits"}, None, of, output=outputs)
    text = made.builder.program(["weights"]).to_json()
    reason = tensor_ops_cuda.supports_program(text)
    assert reason == "the cuda backend runs no nodes of the kind route"


RUN = ("q8_0", "q4_0", "bf16")
OTHERS = tuple(kind for kind in FORMATS if kind not in RUN)


@pytest.mark.parametrize("kind", RUN)
@pytest.mark.parametrize("head_kind", RUN)
def test_types_of_matrices_are_mixed(kind, head_kind):
    program, _ = Llama(kind, head_kind).program()
    assert tensor_ops_cuda.supports_program(program.to_json()) is None


@pytest.mark.parametrize("kind", OTHERS)
def test_matrices_of_other_types_are_refused_with_what_to_take(kind):
    """As a product, beside a table in q8_0 as in SmolLM2's own file in Q4_1, and as a table."""
    made = Assembly()
    made.select("s", "x")
    made.linear("y", "s", made.tensor("w", np.zeros((256, COLUMNS)), "bf16"))
    made.add("linear", "z", {"x": "y"}, weight=declared(made, "v", kind))
    product = made.builder.program(["z"])
    made = Assembly()
    made.add("embed", "e", {"tokens": "tokens"}, weight=declared(made, "v", kind))
    for program in (product, made.builder.program(["e"])):
        reason = tensor_ops_cuda.supports_program(program.to_json())
        assert f"runs matrices of q8_0, q4_0 and bf16, got {kind} ('v')" in reason
        assert 'take a file of q8_0 or q4_0, or a folder of bf16, which quantize="q8_0"' in reason


def declared(made, name, kind):
    """Return a matrix without its bytes, of whole blocks in all types."""
    return made.builder.tensor(name, Tensor(kind, (30, 256), {"attached": True}))
