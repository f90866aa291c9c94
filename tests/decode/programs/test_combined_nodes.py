"""Programs of version 1, whose kinds were several of today's nodes, are read as these nodes."""

import json

import numpy as np
import pytest

from tensor_ops.extension import OPS
from tensor_ops_decode import Builder, Limits, Program, Tensor, reference

VERSION_1 = """
{
  "format": "tensor-ops program", "version": 1,
  "limits": {"max_requests": 1, "max_tokens": 3, "max_selected": 3, "max_seq_length": 16,
             "page_size": 16, "num_pages": 1},
  "tensors": {
    "table": {"type": "f32", "shape": [10, 8], "source": {"attached": true}},
    "norm": {"type": "f32", "shape": [8], "source": {"attached": true}},
    "a": {"type": "f32", "shape": [6, 8], "source": {"attached": true}},
    "b": {"type": "f32", "shape": [10, 8], "source": {"attached": true}},
    "bias of a": {"type": "f32", "shape": [6], "source": {"attached": true}},
    "bias of b": {"type": "f32", "shape": [10], "source": {"attached": true}},
    "square": {"type": "f32", "shape": [8, 8], "source": {"attached": true}}
  },
  "caches": {},
  "values": {
    "x": {"rows": "tokens", "columns": 8, "dtype": "float32"},
    "last": {"rows": "selected", "columns": 8, "dtype": "float32"},
    "wide": {"rows": "selected", "columns": 16, "dtype": "float32"},
    "mlp": {"rows": "selected", "columns": 8, "dtype": "float32"},
    "y": {"rows": "selected", "columns": 8, "dtype": "float32"}
  },
  "nodes": [
    {"kind": "embed", "name": "x", "inputs": {"tokens": "tokens"},
     "weights": {"weight": ["table"]}, "outputs": {"output": "x"}, "attributes": {}},
    {"kind": "select", "name": "last", "inputs": {"x": "x"}, "weights": {},
     "outputs": {"output": "last"}, "attributes": {}},
    {"kind": "rms_norm_linear", "name": "wide", "inputs": {"x": "last"},
     "weights": {"norm": ["norm"], "weight": ["a", "b"], "bias": ["bias of a", "bias of b"]},
     "outputs": {"output": "wide"}, "attributes": {"eps": 1e-05}},
    {"kind": "silu_mul_linear_with_residual", "name": "mlp",
     "inputs": {"x": "wide", "residual": "last"},
     "weights": {"weight": ["square"], "bias": ["norm"]}, "outputs": {"output": "mlp"},
     "attributes": {}},
    {"kind": "linear", "name": "y", "inputs": {"x": "mlp", "residual": "last"},
     "weights": {"weight": ["square"]}, "outputs": {"output": "y"}, "attributes": {}}
  ],
  "outputs": ["wide", "mlp", "y"]
}
"""


@pytest.fixture(scope="module")
def program():
    """The same program of today's nodes."""
    builder = Builder(Limits(1, 3, 3, 16, 16, 1))
    shapes = {"table": (10, 8), "norm": (8,), "a": (6, 8), "b": (10, 8)}
    shapes |= {"bias of a": (6,), "bias of b": (10,), "square": (8, 8)}
    for name, shape in shapes.items():
        builder.tensor(name, Tensor("f32", shape, {"attached": True}))
    add = builder.add
    add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    add("select", {"x": "x"}, output="last")
    add("rms_norm", {"x": "last"}, {"weight": "norm"}, {"eps": 1e-5}, output="wide.norm")
    weights = {"weight": ["a", "b"], "bias": ["bias of a", "bias of b"]}
    add("linear", {"x": "wide.norm"}, weights, output="wide")
    add("silu_mul", {"x": "wide"}, output="mlp.hidden")
    weights = {"weight": "square", "bias": "norm"}
    add("linear", {"x": "mlp.hidden"}, weights, output="mlp.product")
    add("add", {"a": "mlp.product", "b": "last"}, output="mlp")
    add("linear", {"x": "mlp"}, {"weight": "square"}, output="y.product")
    add("add", {"a": "y.product", "b": "last"}, output="y")
    return builder.program(["wide", "mlp", "y"])


@pytest.fixture(scope="module")
def tensors(program):
    draw = np.random.default_rng(3)
    return {
        name: draw.standard_normal(tensor.shape).astype(np.float32)
        for name, tensor in program.tensors.items()
    }


def results(executor, text, tensors):
    """Return the outputs of a step of three tokens."""
    made = executor.compile_program(text, tensors)
    made.arrays["tokens"][:] = [7, 0, 3]
    made.arrays["positions"][:] = made.arrays["selected"][:] = np.arange(3)
    made.arrays["page_table"][:] = 0
    made.run(3, 3)
    found = [made.arrays[name].copy() for name in ("wide", "mlp", "y")]
    made.close()
    return found


def test_a_program_of_version_1_is_the_same_of_todays_nodes(program):
    read = Program.from_json(VERSION_1)
    assert read == program
    assert list(read.values)[-4:] == ["wide.norm", "mlp.hidden", "mlp.product", "y.product"]
    assert json.loads(read.to_json())["version"] == 2


def test_its_bits_are_those_of_the_kinds_that_it_had(tensors):
    wide, mlp, y = results(reference, VERSION_1, tensors)
    of_wide, square = np.concatenate([tensors["a"], tensors["b"]]), tensors["square"]
    bias = np.concatenate([tensors["bias of a"], tensors["bias of b"]])
    for row, token in enumerate([7, 0, 3]):
        x = tensors["table"][token]
        expected = of_wide @ OPS["rms_norm"].numpy(x, tensors["norm"], 1e-5) + bias
        assert np.array_equal(wide[row], expected)
        expected = square @ OPS["silu_mul"].numpy(*np.split(expected, 2)) + tensors["norm"] + x
        assert np.array_equal(mlp[row], expected)
        assert np.array_equal(y[row], square @ expected + x)


def test_every_executor_reads_it_as_today_s_nodes(executor, program, tensors):
    if (reason := executor.supports_program(program.to_json())) is not None:
        pytest.skip(reason)
    old, new = (results(executor, text, tensors) for text in (VERSION_1, program.to_json()))
    assert all(np.array_equal(*both) for both in zip(old, new, strict=True))


def changed(change, version=1):
    data = json.loads(VERSION_1) | {"version": version}
    change(data, {node["name"]: node for node in data["nodes"]})
    return json.dumps(data)


def test_names_between_nodes_are_new():
    def take(data, nodes):
        nodes["last"] |= {"name": "y.product", "outputs": {"output": "mlp.hidden"}}
        data["values"]["mlp.hidden"] = data["values"].pop("last")
        nodes["wide"]["inputs"]["x"] = "mlp.hidden"
        nodes["mlp"]["inputs"]["residual"] = nodes["y"]["inputs"]["residual"] = "mlp.hidden"
        nodes["wide"]["name"] = "any"

    nodes = Program.from_json(changed(take)).nodes
    assert [node.name for node in nodes] == [
        *("x", "y.product", "wide.norm", "any", "mlp.hidden'", "mlp.product", "mlp"),
        *("y.product'", "y"),
    ]
    assert nodes[-1].inputs == {"a": "y.product'", "b": "mlp.hidden"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data, nodes: nodes["wide"]["weights"].pop("norm"), "'wide"),
        (lambda data, nodes: nodes["wide"]["weights"].update(more=["a"]), "'wide"),
        (lambda data, nodes: nodes["wide"]["inputs"].update(x="absent"), "rms_norm_linear"),
        (lambda data, nodes: nodes["wide"]["inputs"].update(x=3), "wide|inputs"),
        (lambda data, nodes: nodes["wide"]["inputs"].update(residual="last"), "rms_norm_linear"),
        (lambda data, nodes: nodes["wide"]["outputs"].update(output="absent"), "rms_norm_linear"),
        (lambda data, nodes: nodes["mlp"]["attributes"].update(eps=1e-5), "'mlp'"),
        (lambda data, nodes: nodes["mlp"]["inputs"].pop("residual"), "with_residual"),
        (lambda data, nodes: nodes["y"]["inputs"].update(more="last"), "'y'"),
        (lambda data, nodes: nodes["y"].pop("weights"), "'y'|weights"),
        (lambda data, nodes: data["values"]["y"].pop("rows"), "rows"),
        (lambda data, nodes: data["values"]["wide"].update(columns=15), "'wide'"),
        (lambda data, nodes: data.pop("nodes"), "nodes"),
    ],
)
def test_what_has_another_form_is_refused(executor, change, words):
    with pytest.raises(ValueError, match=words):
        executor.compile_program(changed(change), {})


def test_version_2_has_no_such_kinds(executor):
    with pytest.raises(ValueError, match=r"'wide'.*no such kind"):
        executor.compile_program(changed(lambda data, nodes: None, version=2), {})
