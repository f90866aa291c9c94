"""The arrays of a program's tensors: from files, from tables, from the caller, and never copied."""

import json

import numpy as np
import pytest

from tensor_ops_decode import FileFormatError
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.weights import open_weights

LIMITS = Limits(1, 4, 1, 6, 4, 2)
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path):
    """A model of one tensor, in the formats of Hugging Face."""
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, VALUES.nbytes]}
    header = json.dumps({"w": entry}).encode()
    header += b" " * (-len(header) % 8)
    content = len(header).to_bytes(8, "little") + header + VALUES.tobytes()
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    return tmp_path


def program(folder, transform=None, shape=(2, 3), tensor="w", form="f32"):
    source = {
        "file": str(folder / "model.safetensors"),
        "tensor": tensor,
        "transform": transform or [],
    }
    builder = Builder(LIMITS)
    builder.tensor("weight", Tensor(form, shape, source))
    return builder.program([])


def test_stored_tensors_are_views_of_their_file(folder):
    weights = open_weights(folder)
    for opened in (weights, None):
        data = TensorArrays(program(folder), {}, opened)["weight"]
        assert data.tobytes() == VALUES.tobytes()
        assert not data.flags.owndata
        assert not data.flags.writeable


def test_transforms_are_applied(folder):
    made = program(folder, ["transpose", "plus_one"], (3, 2))
    found = TensorArrays(made, {})["weight"].reshape(-1).view(np.float32)
    np.testing.assert_array_equal(found.reshape(3, 2), VALUES.T + 1)


def test_a_tensor_that_is_missing_or_another_one_is_named_with_its_file(folder):
    with pytest.raises(FileFormatError, match=r"model.safetensors: tensor 'v' is missing"):
        TensorArrays(program(folder, tensor="v"), {})["weight"]
    for wrong in ({"shape": (3, 2)}, {"form": "f16"}):
        with pytest.raises(FileFormatError, match=r"'w' is f32 of shape \(2, 3\); the program was"):
            TensorArrays(program(folder, **wrong), {})["weight"]


def test_rotary_tables_are_computed_in_double_precision():
    builder = Builder(LIMITS)
    names = builder.rotary_tables([1.0, 0.3], factor=1.5)
    tables = TensorArrays(builder.program([]), {})
    angles = np.outer(np.arange(6), [1.0, 0.3])
    for slot, function in (("cos", np.cos), ("sin", np.sin)):
        # Rounded to float32 once, from values that are right to float64's last digits.
        error = np.abs(tables[names[slot]] - 1.5 * function(angles))
        assert np.all(error <= (2.0**-24 + 2.0**-50) * np.abs(1.5 * function(angles)))


def test_a_scale_of_queries_grows_from_one_length_to_the_next():
    builder = Builder(LIMITS)
    name = builder.query_scale(0.5, 3)
    table = TensorArrays(builder.program([]), {})[name]
    expected = 1 + 0.5 * np.log([1, 1, 1, 2, 2, 2])
    assert table.dtype == np.float32
    assert np.array_equal(table, expected.astype(np.float32).reshape(6, 1))


def test_what_is_attached_is_the_array_itself():
    builder = Builder(LIMITS)
    builder.tensor("mine", Tensor("f32", (2, 3), {"attached": True}))
    made = builder.program([])
    assert TensorArrays(made, {"mine": VALUES})["mine"] is VALUES
    with pytest.raises(ValueError, match="tensor 'mine' must be attached, and is not"):
        TensorArrays(made, {})["mine"]


def part_of_mine(*cuts, shape=(1, 3)):
    source = {"attached": True, "tensor": "mine", "shape": [2, 3], "transform": list(cuts)}
    builder = Builder(LIMITS)
    builder.tensor("part", Tensor("f32", shape, source))
    return builder.program([])


def test_rows_of_what_is_attached_are_part_of_the_array():
    found = TensorArrays(part_of_mine("rows:1:2"), {"mine": VALUES})["part"]
    assert np.shares_memory(found, VALUES)
    assert found.tobytes() == VALUES[1:].tobytes()


def test_columns_of_what_is_attached_are_contiguous():
    found = TensorArrays(part_of_mine("columns:1:3", shape=(2, 2)), {"mine": VALUES})["part"]
    assert found.flags.c_contiguous
    assert found.tobytes() == VALUES[:, 1:].tobytes()


def test_an_array_of_which_a_part_is_wanted_has_the_type_and_shape_that_are_stated():
    with pytest.raises(ValueError, match="tensor 'mine' must be attached, and is not"):
        TensorArrays(part_of_mine("rows:1:2"), {"part": VALUES})["part"]
    for wrong in (VALUES.T, VALUES[:1], VALUES.astype(np.float16)):
        with pytest.raises(ValueError, match=r"tensor 'mine' must be f32 of shape \(2, 3\)"):
            TensorArrays(part_of_mine("rows:1:2"), {"mine": wrong})["part"]
    with pytest.raises(ValueError, match=r"rows:0:2 of it has shape \(2, 3\); .* \(1, 3\)"):
        TensorArrays(part_of_mine("rows:0:2"), {"mine": VALUES})["part"]
