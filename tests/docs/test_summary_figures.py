"""The figures of the README are what their records give."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

import summary_figures
from pages import FIGURES

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def made():
    return summary_figures.figures()


@pytest.mark.parametrize("name", ["summary-performance.svg", "summary-accuracy.svg"])
def test_figure_is_what_the_record_gives(name, made):
    drawn = (FIGURES / name).read_text(encoding="utf-8")
    assert drawn == made[name], "run: python benchmarks/summary_figures.py"
    assert f"docs/figures/{name}" in README.read_text(encoding="utf-8")


def test_figures_are_well_formed_and_titled(made):
    for drawing in made.values():
        title = ElementTree.fromstring(drawing).find("{http://www.w3.org/2000/svg}title")
        assert title.text
