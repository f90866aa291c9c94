"""The pictures of the pages: every word is inside and beside the others, every series measured."""

import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

import decode_models
import error_tables
import summary_figures
from comparison import figures
from comparison.record import read
from comparison.results import Results, is_library
from decode_peers.cases import ENGINES
from pages import FIGURES
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = sorted(path.name for path in Path(FIGURES).glob("*.svg"))
DRAWN_BY_MATPLOTLIB = {f"performance-{dtype}.svg" for dtype in DTYPES}
# A line of words, in parts of the font's size: above its baseline and below.
ABOVE, BELOW = 0.76, 0.24
# Which parts of a picture of matplotlib hold what it names.
PARTS = ("legend", "ytick")


@dataclass(frozen=True)
class Words:
    """Words in a picture, and the box that they take in DejaVu Sans, a wide font."""

    words: str
    anchor: str
    left: float
    right: float
    top: float
    bottom: float
    part: str

    def overlaps(self, other):
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def words_of(name):
    """Return the view box of a picture, and all of its words."""
    root = ElementTree.parse(FIGURES / name).getroot()
    found = []
    read_into(found, root, {"font-size": "16", "text-anchor": "start", "font-weight": "400"})
    return list(map(float, root.get("viewBox").split())), found


def read_into(found, element, inherited, part=""):
    style = dict(each.split(":", 1) for each in element.get("style", "").split(";") if each)
    own = dict(element.attrib) | {key.strip(): value.strip() for key, value in style.items()}
    known = {key: own.get(key, value) for key, value in inherited.items()}
    part = next((each for each in PARTS if element.get("id", "").startswith(each)), part)
    if element.tag == f"{SVG}text":
        found.append(box(element, known, part))
    for child in element:
        read_into(found, child, known, part)


def box(element, style, part):
    size = float(style["font-size"].removesuffix("px"))
    weight = int(style["font-weight"])
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(element.text, font, ismath=False)
    transforms = dict(re.findall(r"(\w+)\(([^)]*)\)", element.get("transform", "")))
    turned = float(transforms.get("rotate", "0").split()[0])
    assert turned == 0, f"{element.text!r} is turned, which is hard to read"
    place = transforms.get("translate", f"{element.get('x')} {element.get('y')}")
    x, y = map(float, place.split())
    left = x - width * {"start": 0, "middle": 0.5, "end": 1}[style["text-anchor"]]
    return Words(
        *(element.text, style["text-anchor"], left, left + width),
        *(y - ABOVE * size, y + BELOW * size, part),
    )


def labels(name):
    """Return the names of the rows of a picture; what has two lines is two names."""
    words = words_of(name)[1]
    if name in DRAWN_BY_MATPLOTLIB:
        return [each.words for each in words if each.part == "ytick"]
    return [each.words for each in words if each.anchor == "end"]


def legend(name):
    words = words_of(name)[1]
    if name in DRAWN_BY_MATPLOTLIB:
        return [each.words for each in words if each.part == "legend"]
    # Beside squares, which no other words are.
    squares = [
        element
        for element in ElementTree.parse(FIGURES / name).iter(f"{SVG}rect")
        if element.get("width") == element.get("height") == "12"
    ]
    places = {float(each.get("x")) + 18: each for each in squares}
    top = float(squares[0].get("y"))
    found = [each for each in words if top - 3 < each.top < top + 12 and each.left in places]
    assert len(found) == len(squares)
    return [each.words for each in found]


@pytest.mark.parametrize("name", PICTURES)
def test_words_are_inside_the_picture(name):
    (left, top, width, height), words = words_of(name)
    assert words
    for each in words:
        assert left <= each.left, f"{each.words!r} begins outside of the picture"
        assert each.right <= left + width, f"{each.words!r} ends outside of the picture"
        assert top <= each.top, each
        assert each.bottom <= top + height, each


@pytest.mark.parametrize("name", PICTURES)
def test_words_do_not_overlap(name):
    for one, other in combinations(words_of(name)[1], 2):
        assert not one.overlaps(other), (one, other)


def test_every_picture_has_a_test_of_its_series():
    summaries = {f"summary-{each}.svg" for each in ("accuracy", "decode", "performance")}
    assert set(PICTURES) == {*DRAWN_BY_MATPLOTLIB, *summaries, "architecture.svg"}


def test_engines_of_the_picture_of_text_generation():
    results = decode_models.results("avx512")
    cases = {"decode": "decode", "prompt": "prompt of 512", "batch 8": "8 sequences"}
    measured = {name for case in cases for name in results.engines("SmolLM2 Q4_1", case)}
    engines = {name for name in measured if ENGINES[name].threads == 2}
    # The processor's own speed, which bandwidths are fractions of, is no engine.
    engines -= {"read", "multiply"}
    shown = labels("summary-decode.svg")
    assert sorted(shown) == sorted(name.replace(" Runtime", "") for name in engines)
    assert legend("summary-decode.svg") == list(cases.values())


def test_libraries_of_the_picture_of_times():
    results = Results(read(summary_figures.RESULTS / "peers.json"))
    peers = [results.label(peer) for peer in results.content["peers"] if is_library(peer)]
    assert sorted(labels("summary-performance.svg")) == sorted(peers)
    assert legend("summary-performance.svg") == ["one row", "2048 rows"]


def test_backends_of_the_picture_of_errors():
    record = error_tables.read(summary_figures.RESULTS / "errors.json")
    shown = [name for name in measured(record) if not VARIANTS[name].op.derivative_of]
    assert labels("summary-accuracy.svg") == shown
    backends = {cell["backend"] for cell in record["cells"]}
    assert set(legend("summary-accuracy.svg")) == backends


def measured(record):
    """Return the variants of a record, which has all but derivatives that are new."""
    names = {cell["variant"] for cell in record["cells"]}
    assert all(each.op.derivative_of for name, each in VARIANTS.items() if name not in names)
    return [name for name in VARIANTS if name in names]


@pytest.mark.parametrize("name", sorted(DRAWN_BY_MATPLOTLIB))
def test_series_of_the_pictures_by_op(name):
    assert legend(name) == [label for _, _, label, _, _ in figures.SERIES]
    panels = sum("threads" in each.words for each in words_of(name)[1])
    record = Results(read(summary_figures.RESULTS / "peers.json")).content
    words = [word for variant in measured(record) for word in variant.split(":")]
    assert sorted(labels(name)) == sorted(words * panels)


def test_packages_of_the_picture_of_the_architecture():
    packages = Path(FIGURES).parents[1].glob("packages/*/pyproject.toml")
    names = {path.parent.name.replace("-", "_") for path in packages}
    words = {each.words for each in words_of("architecture.svg")[1]}
    assert names == {each for each in words if each.startswith("tensor_ops")}
