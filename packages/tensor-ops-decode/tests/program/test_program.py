"""Programs print, round-trip and compare; one that does not fit together is an error."""

import contextlib
import copy
import json

import pytest

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Limits, Node, Program, Tensor
from tensor_ops_decode.program.builder import Builder

LIMITS = Limits(2, 8, 2, 64, 16, 8)
ATTENTION = {
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_size": 8,
    "scale": 0.5,
    "window": 0,
    "soft_cap": 0.0,
    "rotation": "halves",
    "eps": 1e-6,
    "cache": "cache",
}


def attached(*shape, kind="f32"):
    return Tensor(kind, shape, {"attached": True})


@pytest.fixture
def builder():
    builder = Builder(LIMITS)
    builder.tensor("table", attached(10, 32))
    builder.tensor("norm", attached(32))
    builder.tensor("weight", attached(12, 32, kind="q8_0"))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    return builder


@pytest.fixture
def program(builder):
    builder.add("select", {"x": "x"}, output="last")
    builder.add("rms_norm", {"x": "last"}, {"weight": "norm"}, {"eps": 1e-5}, output="normed")
    builder.add("linear", {"x": "normed"}, {"weight": ["weight", "weight"]}, output="qkv")
    builder.add("linear", {"x": "x"}, {"weight": ["weight", "weight", "table"]}, output="wide")
    builder.tensor("to qkv", attached(32, 34))
    builder.add("linear", {"x": "wide"}, {"weight": "to qkv"}, output="heads")
    builder.cache("cache", Cache(1, 8, "float16", True))
    tables = builder.rotary_tables([1.0, 0.25])
    builder.add("attention", {"qkv": "heads"}, tables, ATTENTION, output="attention")
    builder.add("argmax", {"x": "qkv"}, output="next")
    return builder.program(["attention", "next"])


def test_a_program_survives_json(program):
    again = Program.from_json(program.to_json())
    assert again == program
    assert again.to_json() == program.to_json()


def test_a_program_prints_a_line_for_each_node(program):
    lines = str(program).splitlines()
    assert len(lines) == len(program.nodes)
    assert lines[2:4] == [
        "normed [selected, 32] = rms_norm(x=last, weight=norm, eps=1e-05)",
        "qkv [selected, 24] = linear(x=normed, weight=weight+weight)",
    ]


def test_every_kind_has_samples():
    assert all(kind.samples for kind in KINDS.values())


def paths(data, path=()):
    """Yield the place of everything in a JSON value."""
    for key in data if isinstance(data, dict) else range(len(data)):
        yield (*path, key)
        if isinstance(data[key], (dict, list)):
            yield from paths(data[key], (*path, key))


@pytest.mark.parametrize("value", [None, -1, 2**70, 0.5, "", "x", [], {}, True])
def test_any_other_value_anywhere_is_an_error_or_a_program(program, value):
    text = program.to_json()
    for path in paths(json.loads(text)):
        data = json.loads(text)
        *parents, last = path
        part = data
        for key in parents:
            part = part[key]
        part[last] = copy.deepcopy(value)
        with contextlib.suppress(ProgramError):
            Program.from_json(json.dumps(data))


def test_a_node_that_does_not_fit_leaves_the_builder_as_it_was(builder):
    before = builder.program(["x"])
    builder.tensor("other", attached(4, 34))
    with pytest.raises(ProgramError, match="columns of weight must be 32, got 34"):
        builder.add("linear", {"x": "x"}, {"weight": "other"}, output="y")
    with pytest.raises(ProgramError, match="exists already"):
        builder.add("select", {"x": "x"}, output="x")
    assert builder.program(["x"]).nodes == before.nodes


def test_nodes_that_are_added_together_are_all_there_or_none(builder):
    def add_with_residual(weight):
        output, weights = {"output": "y.product"}, {"weight": (weight,)}
        product = Node("linear", "y.product", {"x": "x"}, weights, output, {})
        output, inputs = {"output": "y"}, {"a": "y.product", "b": "x"}
        builder.add_nodes([product, Node("add", "y", inputs, {}, output, {})])

    before = builder.program(["x"])
    with pytest.raises(ProgramError, match="columns of b must be 12, got 32"):
        add_with_residual("weight")
    assert builder.program(["x"]) == before
    builder.tensor("square", attached(32, 32))
    add_with_residual("square")
    assert [node.name for node in builder.nodes] == ["x", "y.product", "y"]


def test_a_value_is_given_another_name_wherever_it_is_read(builder):
    builder.add("add", {"a": "x", "b": "x"}, output="y")
    builder.rename("x", "z")
    assert str(builder.program(["z", "y"])).splitlines() == [
        "z [tokens, 32] = embed(tokens=tokens, weight=table)",
        "y [tokens, 32] = add(a=z, b=z)",
    ]


def test_only_the_tokens_of_a_step_are_looked_up(builder):
    builder.add("argmax", {"x": "x"}, output="largest")
    with pytest.raises(ProgramError, match="tokens must be the value 'tokens', got 'largest'"):
        builder.add("embed", {"tokens": "largest"}, {"weight": "table"}, output="again")
