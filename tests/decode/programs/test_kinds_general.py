"""Kinds of nodes beyond those of today's models: declared in Python, run, and checked in C++."""

import copy
import json

import numpy as np
import pytest

from general_kinds import GENERAL_KINDS
from native_rules import NativeRules
from node_programs import LIMITS, TOKENS, fill_step
from tensor_ops_decode import reference
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Cache, Program, State, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.step_reads import cache_bytes_read, weight_bytes_read

COLUMNS, ROWS, HEADS, KEYS, VALUES = 8, 3, 2, 3, 5
STATE = State(4, 6)
SHAPES = {
    "x": (TOKENS, COLUMNS),
    "qkv": (TOKENS, HEADS * (2 * KEYS + VALUES)),
    "of state": (TOKENS, 2 * STATE.rows + STATE.columns),
    "stack": (COLUMNS, ROWS, COLUMNS),
    "gate.0": (2, COLUMNS),
    "gate.1": (1, COLUMNS),
    "up": (ROWS, COLUMNS),
    "gate_bias.0": (2,),
    "gate_bias.1": (1,),
    "up_bias": (ROWS,),
}


@pytest.fixture(autouse=True, scope="module")
def kinds():
    """Enters the general kinds beside all others."""
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in GENERAL_KINDS.items():
            patch.setitem(KINDS, name, kind)
        yield


@pytest.fixture(scope="module")
def native(kinds, tmp_path_factory):
    return NativeRules(tmp_path_factory.mktemp("rules"), KINDS.values())


@pytest.fixture(scope="module")
def tensors():
    draw = np.random.default_rng(5)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def program(kinds):
    builder = Builder(LIMITS)
    for name, shape in SHAPES.items():
        builder.tensor(name, Tensor("f32", shape, {"attached": True}))
    for name in ("x", "qkv", "of state"):
        builder.add("embed", {"tokens": "tokens"}, {"weight": name}, output=name)
    outputs = {"elements": "elements", "numbers": "numbers"}
    builder.add("largest_two", {"x": "x"}, output=outputs)
    of_numbers = {"x": "x", "numbers": "numbers"}
    builder.add("chosen_columns", of_numbers, output="columns")
    builder.add("chosen_linear", of_numbers, {"weight": "stack"}, output="chosen")
    weights = {"gate": ("gate.0", "gate.1"), "up": "up"}
    biases = {"gate_bias": ("gate_bias.0", "gate_bias.1"), "up_bias": "up_bias"}
    builder.add("two_products", {"x": "x"}, weights | biases, output="products")
    builder.cache("cache", Cache(HEADS, KEYS, "float32", True, VALUES))
    sizes = {"heads": HEADS, "keys": KEYS, "values": VALUES, "cache": "cache"}
    builder.add("attention_of_sizes", {"qkv": "qkv"}, {}, sizes, output="attended")
    builder.cache("state", STATE)
    sizes = {"rows": STATE.rows, "columns": STATE.columns, "cache": "state"}
    builder.add("sum_of_products", {"qkv": "of state"}, {}, sizes, output="summed")
    builder.add("argmax", {"x": "x"}, output="largest")
    return builder.program(
        ["elements", "numbers", "columns", "chosen", "products", "attended", "summed"]
    )


def expected(tensors):
    """Return the outputs for tokens 0, 1, 2, 3, 4, 0, 1, ... with NumPy alone."""
    rows = np.arange(TOKENS) % 5
    x, qkv, of_state = (tensors[name][rows].astype(np.float64) for name in list(SHAPES)[:3])
    numbers = np.argsort(-x, axis=1, kind="stable")[:, :2]
    elements = np.take_along_axis(x, numbers, axis=1)
    chosen = [
        np.concatenate([tensors["stack"][n] @ row for n in two])
        for row, two in zip(x, numbers, strict=True)
    ]
    gate = x @ np.concatenate([tensors["gate.0"], tensors["gate.1"]]).T
    gate += np.concatenate([tensors["gate_bias.0"], tensors["gate_bias.1"]])
    products = gate * (x @ tensors["up"].T + tensors["up_bias"])
    q, k, v = np.split(qkv, (HEADS * KEYS, 2 * HEADS * KEYS), axis=1)
    q, k, v = (part.reshape(TOKENS, HEADS, -1) for part in (q, k, v))
    scores = np.exp(np.einsum("thd,nhd->htn", q, k)) * np.tri(TOKENS)
    scores /= scores.sum(axis=2, keepdims=True)
    attended = np.einsum("htn,nhd->thd", scores, v).reshape(TOKENS, -1)
    q, k, v = np.split(of_state, (STATE.rows, 2 * STATE.rows), axis=1)
    summed = [q[t] @ (k[: t + 1].T @ v[: t + 1]) for t in range(TOKENS)]
    values = (elements, numbers, elements, chosen, products, attended, summed)
    return dict(zip(list(OUTPUTS), values, strict=True))


OUTPUTS = ("elements", "numbers", "columns", "chosen", "products", "attended", "summed")


@pytest.mark.parametrize("first_tokens", [TOKENS, 4])
def test_the_reference_runs_them(program, tensors, first_tokens):
    """In one step, or in two: what a step keeps is what the next one reads."""
    executable = reference.compile_program(program.to_json(), tensors)
    found = {name: [] for name in OUTPUTS}
    for first, count in ((0, first_tokens), (first_tokens, TOKENS - first_tokens)):
        if count == 0:
            continue
        fill_step(executable.arrays, count, first=first)
        executable.run(count, 0)
        for name in OUTPUTS:
            found[name].append(executable.arrays[name][:count].copy())
    for name, right in expected(tensors).items():
        np.testing.assert_allclose(
            np.concatenate(found[name]), right, rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_a_state_begins_with_zeros_for_each_request(program, tensors):
    executable = reference.compile_program(program.to_json(), tensors)
    for _ in range(2):
        fill_step(executable.arrays)
        executable.run(TOKENS, 0)
    right = expected(tensors)["summed"]
    np.testing.assert_allclose(executable.arrays["summed"][:TOKENS], right, rtol=1e-4, atol=1e-5)


def test_tokens_that_choose_are_checked_before_a_step(tensors):
    builder = Builder(LIMITS)
    for name in ("x", "stack"):
        builder.tensor(name, Tensor("f32", SHAPES[name], {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "x"}, output="x")
    inputs = {"x": "x", "numbers": "tokens"}
    builder.add("chosen_linear", inputs, {"weight": "stack"}, output="chosen")
    executable = reference.compile_program(builder.program(["chosen"]).to_json(), tensors)
    executable.arrays["tokens"][0] = COLUMNS
    with pytest.raises(ValueError, match=f"each token must be from 0 to {COLUMNS - 1}"):
        executable.run(1, 0)


def test_a_token_reads_the_matrices_that_it_chooses(program):
    nodes = {each.kind: each for each in program.nodes}
    assert weight_bytes_read(program, nodes["chosen_linear"]) == {"f32": 4 * 2 * ROWS * COLUMNS}
    state = nodes["sum_of_products"]
    assert cache_bytes_read(program, state, 100) == 4 * STATE.rows * STATE.columns
    per_token = 4 * HEADS * (KEYS + VALUES)
    assert cache_bytes_read(program, nodes["attention_of_sizes"], 100) == 100 * per_token


def test_programs_with_them_survive_json_and_are_valid_in_cpp(program, native):
    text = program.to_json()
    assert Program.from_json(text) == program
    assert "elements [tokens, 2], numbers [tokens, 2] = largest_two(x=x)" in str(program)
    ((said, *_),) = native(text)
    assert said == "valid"


def test_what_is_not_used_is_not_written():
    """The JSON of programs without them is what it was."""
    builder = Builder(LIMITS)
    builder.tensor("x", Tensor("f32", (TOKENS, 24), {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "x"}, output="x")
    builder.cache("cache", Cache(1, 8, "float16", True))
    sample = KINDS["attention"].samples[0]
    attributes = {**sample.attributes, "head_size": 8, "cache": "cache"}
    builder.add("attention", {"qkv": "x"}, {}, attributes, output="y")
    data = json.loads(builder.program(["y"]).to_json())
    assert data["caches"] == {
        "cache": {"num_kv_heads": 1, "head_size": 8, "dtype": "float16", "paged": True}
    }


def test_outputs_of_a_node_share_no_memory(program, native):
    """Where no caller reads them, and they lie in memory that values share."""
    data = json.loads(program.to_json())
    ((said, _, sharing),) = native(json.dumps(data | {"outputs": ["summed"]}))
    assert (said, sharing) == ("valid", "")


def node(program, kind, *path):
    (index,) = (i for i, each in enumerate(program.nodes) if each.kind == kind)
    return ("nodes", index, *path)


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("largest_two", ("outputs",), {"elements": "elements"}, ["largest_two", "numbers"]),
        ("largest_two", ("outputs", "more"), "x", ["largest_two", "more"]),
        ("largest_two", ("outputs", "numbers"), "elements", ["largest_two", "elements"]),
        ("chosen_columns", ("inputs", "numbers"), "x", ["numbers", "int32", "float32"]),
        ("chosen_columns", ("inputs", "x"), "elements", ["numbers", "below 8", "below 2"]),
        (None, ("tensors", "stack", "shape"), [7, ROWS, COLUMNS], ["numbers", "below 7"]),
        (None, ("tensors", "stack", "shape"), [ROWS, COLUMNS], ["chosen_linear", "weight"]),
        (None, ("tensors", "stack", "shape"), [COLUMNS, ROWS, 9], ["columns of weight", "8", "9"]),
        (None, ("tensors", "up", "shape"), [ROWS, 9], ["columns of up", "8", "9"]),
        (None, ("tensors", "up", "shape"), [4, COLUMNS], ["rows of up", "3", "4"]),
        (None, ("tensors", "gate_bias.0", "shape"), [3], ["gate_bias", "two_products"]),
        ("two_products", ("weights", "up_bias"), ["gate_bias.0"], ["up_bias", "two_products"]),
        (None, ("caches", "cache", "value_size"), 4, ["value_size", "5", "4"]),
        (None, ("caches", "cache", "value_size"), 0, ["value_size", "0"]),
        (None, ("caches", "cache"), {"rows": 4, "columns": 6}, ["keys and values"]),
        (None, ("caches", "state", "rows"), 5, ["rows of the cache", "4", "5"]),
        (None, ("caches", "state", "columns"), 0, ["columns", "0"]),
        ("sum_of_products", ("attributes", "cache"), "cache", ["cache"]),
    ],
)
def test_what_does_not_fit_is_an_error_in_both_languages(program, native, kind, path, value, words):
    if kind is not None:
        path = node(program, kind, *path)
    data = json.loads(program.to_json())
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    text = json.dumps(data)
    with pytest.raises(ProgramError) as error:
        Program.from_json(text)
    ((said, *_),) = native(text)
    for message in (str(error.value), said):
        assert all(word in message for word in words), message


def test_integers_of_which_nothing_is_stated_choose_nothing(program, native):
    data = json.loads(program.to_json())
    added = copy.deepcopy(data["nodes"][node(program, "chosen_columns")[1]])
    added |= {"name": "again", "outputs": {"output": "again"}}
    added["inputs"]["numbers"] = "largest"
    data["nodes"].append(added)
    data["values"]["again"] = {"rows": "tokens", "columns": 1, "dtype": "float32"}
    text = json.dumps(data)
    with pytest.raises(ProgramError, match="got 'largest', of which nothing is stated"):
        Program.from_json(text)
    ((said, *_),) = native(text)
    assert "got 'largest', of which nothing is stated" in said


def test_what_the_cpp_backend_cannot_run_it_refuses(program, native):
    """The program with only the nodes up to the one, which the message names."""
    kind, words = "two_products", "more than 1 slot of matrices"
    data = json.loads(program.to_json())
    needed = [each for each in data["nodes"] if each["kind"] in ("embed", kind)]
    data["nodes"] = needed
    written = {name for each in needed for name in each["outputs"].values()}
    data["values"] = {name: each for name, each in data["values"].items() if name in written}
    data["outputs"] = [name for name in data["outputs"] if name in written]
    ((said, lacks, _),) = native(json.dumps(data))
    assert said == "valid", said
    assert words in lacks
    assert lacks.endswith(f"which those of the kind {kind} have")
