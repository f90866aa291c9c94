"""The index of the decisions shows every one with its title and its status."""

import re
from pathlib import Path

import pytest

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
FILES = sorted(DECISIONS.glob("0*.md"))
ROW = re.compile(r"^\| \[(\d+)\]\((\S+)\) \| (.+) \| (.+) \|$", re.MULTILINE)
SUPERSEDED = re.compile(r"^Superseded (in part )?by \[decision (\d+)\]\((\d{4})-", re.MULTILINE)


@pytest.fixture(scope="module")
def index():
    """The rows of the index by file name: number, title, status."""
    text = (DECISIONS / "README.md").read_text(encoding="utf-8")
    return {name: (number, title, status) for number, name, title, status in ROW.findall(text)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_index_shows_title_and_status(path, index):
    text = path.read_text(encoding="utf-8")
    number, title = re.match(r"# (\d+)\. (.+)", text).groups()
    assert path.name.startswith(f"{int(number):04}-")
    newer = SUPERSEDED.findall(text)
    numbers = " and ".join(number for _, number, _ in newer)
    status = f"superseded {newer[0][0]}by {numbers}" if newer else "in force"
    assert index[path.name] == (number, title, status)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_newer_decision_names_the_one_that_it_supersedes(path):
    for _, _, number in SUPERSEDED.findall(path.read_text(encoding="utf-8")):
        (successor,) = DECISIONS.glob(f"{number}-*.md")
        assert f"]({path.name})" in successor.read_text(encoding="utf-8")


def test_index_lists_each_file_once(index):
    assert list(index) == [path.name for path in FILES]
