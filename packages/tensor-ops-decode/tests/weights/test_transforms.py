"""Transforms with arguments: rows and columns of a tensor of any type, cut between blocks only."""

import json

import numpy as np
import pytest

from tensor_ops_decode import reference
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.program import Limits, Program, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.weights import StoredTensor, apply_transforms
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.transforms import transformed_shape, type_times

SHAPE = (6, 128)
HALVES = {
    "f16": lambda values: values.astype("<f2"),
    "bf16": lambda values: (values.view(np.uint32) >> 16).astype("<u2"),
}


def stored(kind="f32", shape=SHAPE):
    values = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    if kind in HALVES:
        data = HALVES[kind](values).reshape(-1, shape[-1]).view(np.uint8)
        return StoredTensor("w", kind, shape, data, "model.gguf")
    rows = values.reshape(-1, shape[-1]).view(np.uint8)
    data = FORMATS[kind].quantize(rows, FORMATS["f32"], shape[-1]) if kind != "f32" else rows
    return StoredTensor("w", kind, shape, data, "model.gguf")


@pytest.mark.parametrize("kind", ["f32", "q8_0", "q4_1"])
@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("rows:2:5", np.s_[2:5]),
        ("rows:0:6", np.s_[:]),
        ("columns:32:96", np.s_[:, 32:96]),
        ("columns:96:128", np.s_[:, 96:]),
    ],
)
def test_what_is_kept_is_what_a_slice_keeps(kind, name, kept):
    tensor = stored(kind)
    cut = apply_transforms(tensor, [name])
    right = tensor.values()[kept]
    assert (cut.type, cut.shape) == (kind, right.shape)
    assert cut.data.flags.c_contiguous
    assert np.array_equal(cut.values(), right)


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_some_matrices_of_a_stack_are_kept(kind):
    tensor = stored(kind, (5, 3, 64))
    kept = apply_transforms(tensor, ["planes:1:4"])
    assert (kept.type, kept.shape) == (kind, (3, 3, 64))
    assert np.array_equal(kept.values(), tensor.values()[1:4])
    with pytest.raises(ValueError, match="cannot be cut to planes 0 to 1"):
        apply_transforms(stored(kind, (3, 64)), ["planes:0:1"])


def test_each_matrix_of_a_stack_is_cut():
    tensor = stored("q8_0", (2, 3, 64))
    right = tensor.values()[:, 1:3, 32:64]
    cut = apply_transforms(tensor, ["rows:1:3", "columns:32:64"])
    assert cut.shape == right.shape
    assert np.array_equal(cut.values(), right)


def test_columns_of_a_vector_are_its_elements():
    cut = apply_transforms(stored(shape=(9,)), ["columns:4:9"])
    assert np.array_equal(cut.values(), stored(shape=(9,)).values()[4:9])


@pytest.mark.parametrize(
    ("kind", "shape", "name", "words"),
    [
        ("q8_0", SHAPE, "columns:16:64", ["model.gguf", "'w'", "multiples of 32", "columns 16"]),
        ("q8_0", SHAPE, "columns:0:48", ["multiples of 32", "48"]),
        ("f32", SHAPE, "columns:0:129", ["129", "128 columns"]),
        ("f32", SHAPE, "rows:3:3", ["rows 3 to 3", "6 rows"]),
        ("f32", SHAPE, "rows:4:2", ["rows 4 to 2"]),
        ("f32", (9,), "rows:0:1", ["(9,)", "rows 0 to 1"]),
        ("f32", SHAPE, "rows:-1:2", ["unknown", "rows:a:b"]),
        ("f32", SHAPE, "rows:1", ["unknown", "columns:a:b"]),
    ],
)
def test_a_range_that_does_not_fit_is_an_error(kind, shape, name, words):
    with pytest.raises(ValueError, match=r"\w") as error:
        apply_transforms(stored(kind, shape), [name])
    assert all(word in str(error.value) for word in words), str(error.value)


class Files:
    """The opened files of a model."""

    names = ("w",)

    def tensor(self, name):
        return stored()

    def release_tensor(self, name):
        pass


def test_a_node_computes_with_the_part_that_its_program_names():
    source = {"file": "model.gguf", "tensor": "w"}
    builder = Builder(Limits(1, 1, 1, 16, 16, 1))
    builder.tensor("table", Tensor("f32", (6, 64), {**source, "transform": ["columns:64:128"]}))
    builder.tensor(
        "part", Tensor("f32", (2, 64), {**source, "transform": ["rows:3:5", "columns:0:64"]})
    )
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    builder.add("linear", {"x": "x"}, {"weight": "part"}, output="y")
    program = builder.program(["y"])
    assert Program.from_json(program.to_json()) == program
    executable = reference.compile_program(program.to_json(), TensorArrays(program, {}, Files()))
    executable.arrays["tokens"][0] = 2
    executable.run(1, 0)
    values = stored().values()
    right = values[3:5, :64] @ values[2, 64:]
    np.testing.assert_allclose(executable.arrays["y"][0], right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["rows:1", "rows:a:b", "rows:1:2:3", "stacks:0:1", 3])
def test_a_program_names_only_transforms_that_there_are(name):
    builder = Builder(Limits(1, 1, 1, 16, 16, 1))
    builder.tensor(
        "table", Tensor("f32", (1, 64), {"file": "f", "tensor": "w", "transform": ["rows:0:1"]})
    )
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    data = json.loads(builder.program(["x"]).to_json())
    data["tensors"]["table"]["source"]["transform"] = [name]
    with pytest.raises(ProgramError, match="columns:a:b"):
        Program.from_json(json.dumps(data))


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_blocks_of_rows_are_kept(kind):
    tensor = stored(kind, (12, 64))
    kept = apply_transforms(tensor, ["row_blocks:6:1:3"])
    assert (kept.type, kept.shape) == (kind, (4, 64))
    assert np.array_equal(kept.values(), tensor.values()[[1, 2, 7, 8]])


@pytest.mark.parametrize("name", ["row_blocks:5:0:1", "row_blocks:6:3:3", "row_blocks:0:0:1"])
def test_blocks_that_rows_do_not_have_are_an_error(name):
    with pytest.raises(ValueError, match=f"'{name}' keeps; expected a range within a number"):
        apply_transforms(stored("f32", (12, 64)), [name])


@pytest.mark.parametrize("name", ["planes:1:3", "rows:1:3", "columns:32:64", "rows:1:9"])
def test_the_shape_after_a_cut_is_known_without_its_values(name):
    tensor = stored("q8_0", (4, 6, 64))
    is_beyond = name == "rows:1:9"
    cut = tensor if is_beyond else apply_transforms(tensor, [name])
    assert transformed_shape(tensor.shape, (name,)) == cut.shape
    assert is_beyond or cut.shape != tensor.shape


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_a_matrix_becomes_several_and_is_dequantized(kind):
    tensor = stored(kind, (12, 64))
    planes = apply_transforms(tensor, ["planes:3"])
    assert (planes.type, planes.shape) == (kind, (3, 4, 64))
    assert np.array_equal(planes.values(), tensor.values().reshape(3, 4, 64))
    transposed = apply_transforms(planes, ["dequantize", "transpose"])
    assert (transposed.type, transposed.shape) == ("f32", (3, 64, 4))
    assert np.array_equal(transposed.values(), planes.values().swapaxes(1, 2))
    assert transformed_shape((12, 64), ("planes:3", "dequantize", "transpose")) == (3, 64, 4)


@pytest.mark.parametrize(
    ("name", "shape"), [("planes:5", (12, 64)), ("planes:0", (12, 64)), ("planes:2", (2, 6, 64))]
)
def test_a_matrix_that_is_no_multiple_of_planes_is_an_error(name, shape):
    with pytest.raises(ValueError, match=f"no matrix that '{name}' divides"):
        apply_transforms(stored("f32", shape), [name])


def test_elements_are_flattened_and_made_rates():
    tensor = stored("f32", (3, 4))
    flat = apply_transforms(tensor, ["flatten"])
    assert flat.shape == (12,)
    assert np.array_equal(flat.values(), tensor.values().reshape(-1))
    rates = apply_transforms(flat, ["neg_exp"])
    assert np.array_equal(rates.values(), -np.exp(tensor.values().reshape(-1)))
    with pytest.raises(ValueError, match="'neg_exp' does not apply"):
        apply_transforms(stored("q8_0", (2, 64)), ["neg_exp"])


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_rows_of_two_halves_alternate(kind):
    tensor = stored(kind, (12, 64))
    made = apply_transforms(tensor, ["interleave_rows:6"])
    assert (made.type, made.shape) == (kind, (12, 64))
    assert np.array_equal(made.values(), tensor.values()[[0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]])


@pytest.mark.parametrize("name", ["interleave_rows:5", "interleave_rows:3", "interleave_rows:0"])
def test_rows_without_halves_are_an_error(name):
    with pytest.raises(ValueError, match=f"no halves that '{name}' takes rows of"):
        apply_transforms(stored("f32", (12, 64)), [name])


@pytest.mark.parametrize(("kind", "what"), [("f32", "rows"), ("bf16", "columns"), ("q8_0", "rows")])
def test_a_matrix_has_its_place_among_zeros(kind, what):
    tensor, name = stored(kind, (3, 64)), f"among_{what}:2:70"
    if kind == "q8_0":
        with pytest.raises(ValueError, match=f"'{name}' does not apply"):
            apply_transforms(tensor, [name])
        return
    made = apply_transforms(tensor, [name])
    shape = (70, 64) if what == "rows" else (3, 70)
    assert (made.type, made.shape) == (kind, shape)
    assert transformed_shape(tensor.shape, (name,)) == shape
    right = np.zeros(shape, np.float32)
    right[(slice(2, 5),) if what == "rows" else (slice(None), slice(2, 66))] = tensor.values()
    assert np.array_equal(made.values(), right)
    with pytest.raises(ValueError, match=f"a matrix whose {what} end at 4 at the latest"):
        apply_transforms(tensor, [f"among_{what}:2:4"])


@pytest.mark.parametrize(
    ("kind", "factor", "right"),
    [
        ("bf16", 0.25, "bf16"),
        ("bf16", 1.5, "f32"),
        ("f16", 2.0, "f32"),
        ("f32", 1e-05, "f32"),
        ("f32", 1e20, "f32"),
    ],
)
def test_values_are_multiplied_exactly_or_in_float32(kind, factor, right):
    tensor = stored(kind, (3, 64))
    made = apply_transforms(tensor, [f"times:{factor!r}"])
    assert (made.type, type_times(kind, factor)) == (right, right)
    assert np.array_equal(made.values(), tensor.values() * np.float32(factor))
    with pytest.raises(ValueError, match=r"'times:2\.0' does not apply"):
        apply_transforms(stored("q8_0", (2, 64)), ["times:2.0"])
