"""Programs print, round-trip and compare; one that does not fit together is an error."""

import contextlib
import copy
import json

import pytest

from tensor_ops_decode.builder import Builder
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Limits, Program, Tensor

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
    weights = {"norm": "norm", "weight": ["weight", "weight"]}
    builder.add("rms_norm_linear", {"x": "last"}, weights, {"eps": 1e-5}, output="qkv")
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
    assert lines[2] == (
        "qkv [selected, 24] = rms_norm_linear(x=last, norm=norm, weight=weight+weight, eps=1e-05)"
    )


def test_every_kind_has_samples():
    assert all(kind.samples for kind in KINDS.values())


def at(data, path):
    for key in path[:-1]:
        data = data[key]
    return data, path[-1]


def node(index, *path):
    return ("nodes", index, *path)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("format",), "another", ["format", "tensor-ops program"]),
        (("version",), 2, ["version", "1", "2"]),
        (("more",), 1, ["more", "limits"]),
        (("limits", "page_size"), 0, ["page_size", "0"]),
        (("limits", "page_size"), True, ["page_size", "True"]),
        (("limits", "max_tokens"), 2**60, ["max_tokens", str(2**60)]),
        (("limits", "more"), 1, ["more"]),
        (("tensors", "table", "type"), "q2_K", ["table", "q2_K", "q8_0"]),
        (("tensors", "table", "shape"), [10, 0], ["table", "0"]),
        (("tensors", "table", "shape"), [2**30, 2**30], ["table", str(2**60)]),
        (("tensors", "table", "shape"), [1, 2, 3], ["table", "dimensions"]),
        (("tensors", "table", "shape"), "32", ["list"]),
        (("tensors", "weight", "shape"), [12, 33], ["weight", "multiple of 32", "33"]),
        (("tensors", "table", "source"), {"attached": 1}, ["table", "source"]),
        (("tensors", "table", "source"), [], ["table", "source"]),
        (
            ("tensors", "table", "source"),
            {"file": "f", "tensor": "t", "transform": ["shuffle"]},
            ["table", "shuffle", "transpose"],
        ),
        (("tensors", "rotary.cos", "source", "rotary"), "tan", ["rotary.cos", "tan"]),
        (("tensors", "rotary.cos", "source", "factor"), "1", ["rotary.cos", "finite"]),
        (("tensors", "rotary.cos", "shape"), [64, 3], ["rotary.cos", "frequency"]),
        (("caches", "cache", "dtype"), "bfloat16", ["cache", "bfloat16"]),
        (("caches", "cache", "paged"), 1, ["cache", "paged"]),
        (("caches", "cache", "head_size"), 16, ["attention", "head size"]),
        (("values", "x", "columns"), 31, ["x", "31", "32"]),
        (("values", "x", "rows"), "selected", ["x", "selected"]),
        (("values", "x", "dtype"), "float16", ["x", "float16"]),
        (("values", "spare"), {"rows": "tokens", "columns": 1, "dtype": "int32"}, ["spare"]),
        (node(0, "kind"), "embedding", ["embedding", "rms_norm"]),
        (node(0, "inputs"), {}, ["tokens", "missing"]),
        (node(0, "inputs", "tokens"), "heads", ["tokens", "heads"]),
        (node(0, "weights", "weight"), ["absent"], ["absent"]),
        (node(0, "weights", "weight"), ["table", "table"], ["one tensor", "2"]),
        (node(0, "weights", "weight"), [], ["weight", "0"]),
        (node(0, "weights", "weight"), "table", ["list"]),
        (node(0, "weights", "bias"), ["norm"], ["bias", "unknown"]),
        (node(0, "outputs"), {"output": "x", "more": "y"}, ["more"]),
        (node(0, "outputs", "output"), "y", ["'y'"]),
        (node(1, "name"), "x", ["same name"]),
        (node(2, "attributes", "eps"), -1, ["eps", "-1"]),
        (node(2, "attributes", "eps"), "1", ["eps", "'1'"]),
        (node(2, "attributes"), {}, ["eps", "missing"]),
        (node(2, "attributes", "more"), 1, ["more"]),
        (node(2, "weights", "norm"), ["weight"], ["norm", "dimensions"]),
        (node(2, "weights", "weight"), ["weight", "to qkv"], ["weight", "equal columns"]),
        (node(3, "inputs", "x"), "last", ["wide"]),
        (node(5, "attributes", "cache"), "absent", ["absent"]),
        (node(5, "attributes", "cache"), ["cache"], ["cache"]),
        (node(5, "attributes", "num_kv_heads"), 3, ["num_kv_heads"]),
        (node(5, "attributes", "num_heads"), 2.0, ["num_heads", "2.0"]),
        (node(5, "attributes", "rotation"), "both", ["rotation", "both"]),
        (node(5, "weights"), {"cos": ["rotary.cos"]}, ["sin"]),
        (node(5, "inputs", "qkv"), "qkv", ["attention", "token"]),
        (("outputs",), ["absent"], ["absent"]),
        (("outputs",), ["next", "next"], ["twice"]),
        (("outputs",), "next", ["list"]),
    ],
)
def test_what_does_not_fit_is_an_error(program, path, value, words):
    data = json.loads(program.to_json())
    holder, key = at(data, path)
    holder[key] = value
    with pytest.raises(ProgramError) as error:
        Program.from_json(json.dumps(data))
    assert all(word in str(error.value) for word in words), str(error.value)


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
        holder, key = at(data, path)
        holder[key] = copy.deepcopy(value)
        with contextlib.suppress(ProgramError):
            Program.from_json(json.dumps(data))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"format": "tensor-ops program", "version": 1}', "[" * 100_000]
)
def test_what_is_no_program_is_an_error(text):
    with pytest.raises(ProgramError):
        Program.from_json(text)


def test_a_duplicate_key_is_an_error(program):
    text = program.to_json().replace('"version": 1,', '"version": 1, "version": 1,')
    with pytest.raises(ProgramError, match="version"):
        Program.from_json(text)


def test_tables_shorter_than_the_sequence_are_an_error(program):
    data = json.loads(program.to_json())
    data["limits"]["max_seq_length"] = 65
    with pytest.raises(ProgramError, match=r"cos.* 64 .*65"):
        Program.from_json(json.dumps(data))


def test_two_nodes_cannot_share_a_cache(builder):
    builder.tensor("to qkv", attached(32, 32))
    builder.add("linear", {"x": "x"}, {"weight": "to qkv"}, output="heads")
    builder.cache("cache", Cache(1, 8, "float16", True))
    for output in ("one", "two"):
        builder.add("attention", {"qkv": "heads"}, {}, ATTENTION, output=output)
    with pytest.raises(ProgramError, match="another node uses the cache 'cache'"):
        builder.program(["two"])


def test_a_node_that_does_not_fit_leaves_the_builder_as_it_was(builder):
    before = builder.program(["x"])
    builder.tensor("other", attached(4, 34))
    with pytest.raises(ProgramError, match="columns of weight must be 32, got 34"):
        builder.add("linear", {"x": "x"}, {"weight": "other"}, output="y")
    with pytest.raises(ProgramError, match="exists already"):
        builder.add("select", {"x": "x"}, output="x")
    assert builder.program(["x"]).nodes == before.nodes


def test_only_the_tokens_of_a_step_are_looked_up(builder):
    builder.add("argmax", {"x": "x"}, output="largest")
    builder.add("embed", {"tokens": "largest"}, {"weight": "table"}, output="again")
    with pytest.raises(ProgramError, match="tokens must be the value 'tokens', got 'largest'"):
        builder.program(["again"])
