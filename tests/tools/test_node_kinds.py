"""The kinds of nodes in C++ are those that their files in Python declare."""

import pytest

import node_kinds


@pytest.mark.parametrize("path", node_kinds.files(), ids=lambda path: path.name)
def test_files_are_those_of_the_declarations(path):
    expected = node_kinds.files()[path]
    assert path.read_text(encoding="utf-8") == expected, "run python tools/node_kinds.py"
