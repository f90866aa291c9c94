"""States, stacks of matrices and several outputs in the code around an executor."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from general_kinds import GENERAL_KINDS
from tensor_ops_decode import reference
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.kernel.export import ModelFacts, export_model
from tensor_ops_decode.kinds.kind import Kind, Weight
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Limits, Program, State, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.scheduling.logits import logits_error
from tensor_ops_decode.scheduling.request import Request
from tensor_ops_decode.scheduling.requests import Requests
from tensor_ops_decode.scheduling.sampling import Sampling
from tensor_ops_decode.weights.safetensors import open_safetensors

WORDS, ROWS, COLUMNS = 6, 4, 6


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    for name, kind in GENERAL_KINDS.items():
        monkeypatch.setitem(KINDS, name, kind)


@pytest.fixture
def builder():
    builder = Builder(Limits(1, 8, 8, 64, 4, 16))
    builder.tensor("table", Tensor("f32", (WORDS, 2 * ROWS + COLUMNS), {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    return builder


def with_state(builder):
    builder.cache("state", State(ROWS, COLUMNS))
    sizes = {"rows": ROWS, "columns": COLUMNS, "cache": "state"}
    builder.add("sum_of_products", {"qkv": "x"}, {}, sizes, output="logits")
    builder.add("argmax", {"x": "logits"}, output="next")
    return builder.program(["logits", "next"])


def table(seed):
    draw = np.random.default_rng(seed)
    return {"table": draw.standard_normal((WORDS, 2 * ROWS + COLUMNS)).astype(np.float32)}


def test_looking_for_nan_leaves_a_state_as_it_was(builder):
    program, found = with_state(builder), []
    for looks in (False, True):
        made = reference.compile_program(program.to_json(), table(0))
        for position in range(3):
            made.arrays["tokens"][0], made.arrays["positions"][0] = position + 1, position
            made.run(1, 1)
            if looks:
                assert made.first_nan(1, 1, 0) is None
        found.append(made.arrays["logits"][0].copy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("seed", range(8))
def test_a_program_with_a_state_has_the_same_tokens_with_room_for_guesses(builder, seed):
    program, found = with_state(builder), []
    for most in (1, 8):
        limits = dataclasses.replace(program.limits, max_selected=most)
        with_room = dataclasses.replace(program, limits=limits)
        made = reference.compile_program(with_room.to_json(), table(seed))
        requests = Requests(with_room, made, "logits", "next")
        number = requests.add(Request([1, 2, 3, 1, 2, 3, 1, 2], frozenset(), 20, Sampling()))
        while requests.active:
            requests.run(1, 1e9)
        found.append(list(requests.find(number).tokens))
    assert found[0] == found[1]


def test_a_state_of_more_bytes_than_any_memory_is_an_error(builder):
    program = with_state(builder)
    caches = {"state": State(2**31 - 1, 2**31 - 1)}
    with pytest.raises(ProgramError, match=r"cache 'state': its size in bytes is more than any"):
        dataclasses.replace(program, caches=caches)


def test_a_stack_is_exported_whole(builder, tmp_path):
    stack = np.arange(3 * 4 * 8, dtype=np.float32).reshape(3, 4, 8)
    builder.tensor("stack", Tensor("f32", stack.shape, {"attached": True}))
    builder.add("select", {"x": "x"}, output="logits")
    builder.add("argmax", {"x": "logits"}, output="next")
    program = builder.program(["logits", "next"])
    facts = ModelFacts("model", "logits", "next", 0, frozenset(), None)
    export_model(tmp_path / "model", program, {"stack": stack, **table(0)}, facts)
    tensors, _ = open_safetensors(tmp_path / "model" / "weights.safetensors")
    assert tensors["stack"].shape == stack.shape
    exported = (tmp_path / "model" / "program.json").read_text()
    assert Program.from_json(exported).tensors["stack"].shape == stack.shape


def test_a_node_of_several_outputs_has_the_name_of_the_first_slot(builder):
    outputs = {"numbers": "of numbers", "elements": "of elements"}
    name = builder.add("largest_two", {"x": "x"}, output=outputs)
    assert (name, builder.value(name).dtype) == ("of elements", "float32")
    program = builder.program(["of elements"])
    request = SimpleNamespace(number=0, tokens=[1], prompt_length=1, slot=0, constraint=None)
    executable = SimpleNamespace(first_nan=lambda *step: 1)
    error = logits_error(program, executable, request, 1, 1)
    assert "is that of node 'of elements' (largest_two)" in str(error)


def test_a_size_that_one_of_two_optional_slots_leaves_open_is_an_error():
    kind = KINDS["linear"]
    weights = (
        Weight("a", "vector", "F", optional=True),
        Weight("b", "vector", "G", optional=True),
        Weight("c", "vector", "FG", optional=True),
    )
    values = {field.name: getattr(kind, field.name) for field in dataclasses.fields(kind)}
    with pytest.raises(ValueError, match="FG"):
        Kind(**values | {"name": "open", "weights": (*kind.weights, *weights)})
