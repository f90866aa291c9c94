"""The guide's table of models is what the code runs."""

from pathlib import Path

from tensor_ops_decode.models import FAMILIES
from tensor_ops_decode.text.pre_tokenizers import PRE_TOKENIZERS
from tensor_ops_decode.weights.formats import FORMATS

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "decode.md"


def rows():
    """Return the cells of each row of the tables below the heading Models."""
    section = GUIDE.read_text(encoding="utf-8").split("\n## Models\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_families_are_those_that_run():
    listed = [cells for cells in rows() if len(cells) == 3]
    expected = [[each.name, f"`{each.gguf}`", f"`{each.hugging_face}`"] for each in FAMILIES]
    assert listed[1:] == expected


def test_the_types_of_weights_are_those_that_run():
    (types,) = (cells[1] for cells in rows() if cells[0] == "types of weights")
    assert sorted(types.partition(";")[0].split(", ")) == sorted(name.upper() for name in FORMATS)


def test_the_pre_tokenizers_are_those_that_are_known():
    (names,) = (cells[1] for cells in rows() if cells[0] == "byte-level BPE")
    assert names.endswith(" names " + ", ".join(f"`{name}`" for name in PRE_TOKENIZERS))
