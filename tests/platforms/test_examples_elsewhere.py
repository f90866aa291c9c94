"""The programs of examples/cpp on another system, with the package's own CMake files."""

from pathlib import Path

import pytest
from projects import NORMALISED, SOFTMAX


@pytest.fixture
def example(system, tmp_path):
    """A function that runs a program of the examples, and returns what it printed."""
    if not system.examples:
        pytest.skip("the examples were not built")
    end = ".exe" if system.is_windows else ""
    # Where the program finds the library that it was linked with, on a system without paths in it.
    where = {"LD_LIBRARY_PATH": str(Path(system.library).parent)} if not system.is_windows else {}

    def run(name):
        program = Path(system.examples) / f"{name}{end}"
        return system.run(program, HOME=str(tmp_path), **where).stdout

    return run


def test_a_program_of_the_registry_finds_the_installed_library(example):
    assert example("normalise") == NORMALISED


def test_a_program_that_is_linked_with_the_library_lists_its_ops(example):
    assert example("list_ops").endswith(SOFTMAX)
