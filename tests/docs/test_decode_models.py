"""The guide's table of models is what the code runs."""

from pathlib import Path

import numpy as np
import pytest

import tensor_ops_cpp
from tensor_ops_decode.models import FAMILIES
from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.text.pre_tokenizers import PRE_TOKENIZERS
from tensor_ops_decode.weights.formats import FORMATS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "decode.md"


def rows(first=""):
    """Return the cells of each row of the tables below the heading Models.

    Of one table only, without its heading, where that begins with a cell that is given.
    """
    section = GUIDE.read_text(encoding="utf-8").split("\n## Models\n")[1].split("\n## ")[0]
    if first:
        section = (
            section.partition(f"\n| {first} |")[2].partition("\n\n")[0].partition("|\n|---")[2]
        )
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_families_are_those_that_run():
    expected = [[each.name, f"`{each.gguf}`", f"`{each.hugging_face}`"] for each in FAMILIES]
    assert rows("family") == expected


def test_the_types_of_weights_are_those_that_run():
    (types,) = (cells[1] for cells in rows() if cells[0] == "types of weights")
    assert sorted(types.partition(";")[0].split(", ")) == sorted(name.upper() for name in FORMATS)


def test_the_pre_tokenizers_are_those_that_are_known():
    (names,) = (cells[1] for cells in rows() if cells[0] == "byte-level BPE")
    assert names.endswith(" names " + ", ".join(f"`{name}`" for name in PRE_TOKENIZERS))


def test_the_sizes_of_packed_types_are_those_of_the_table():
    listed = {name: [float(cell) for cell in cells] for name, *cells in rows("type")}
    for name, form in FORMATS.items():
        stored, packed = 8 * form.block_bytes / form.block_size, packed_bits(name)
        if name.upper() in listed:
            assert listed.pop(name.upper()) == pytest.approx([stored, packed], abs=0.006)
        else:
            assert packed <= stored + 0.2
    assert not listed


def packed_bits(kind, num_rows=32, columns=8192):
    """Return how many bits the C++ backend packs a weight in."""
    builder = Builder(Limits(1, 1, 1, 4, 4, 1))
    table = builder.tensor("table", Tensor("f32", (2, columns), {"attached": True}))
    matrix = builder.tensor("matrix", Tensor(kind, (num_rows, columns), {"attached": True}))
    builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    builder.add("linear", {"x": "x"}, {"weight": matrix}, output="y")
    tensors = {
        "table": np.zeros((2, columns), np.float32),
        "matrix": np.zeros((num_rows, FORMATS[kind].row_bytes(columns)), np.uint8),
    }
    made = tensor_ops_cpp.compile_program(builder.program(["y"]).to_json(), tensors)
    size = made.packed_size
    made.close()
    return 8 * size / (num_rows * columns)
