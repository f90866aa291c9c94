"""Every test file is found from its source by its name, or is named by a source."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".c", ".cl", ".clh", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".md", ".mjs", ".py"}
TESTED_BY = re.compile(r"Tested\s+by\s+((?:[\w/-]+(?:\.py)?(?:,\s+|\s+and\s+)?)+)\.")
# Which folders the tests of a folder are about, where it is not named after one.
ABOUT = {
    "decode": ("packages/tensor-ops-decode/src", "native/decode", "native/include"),
    "ranks": ("packages/tensor-ops-decode/src",),
}


def sources(*folders):
    """Return the files below folders that are neither tests nor made by a program."""
    return [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES
        and not {"tests", "build", "results", "_build"} & {*path.relative_to(ROOT).parts}
    ]


def files_of_tests():
    """Return the test files of the packages and of the folders of tests."""
    patterns = ("packages/*/tests/**/test_*.py", "tests/**/test_*.py")
    return sorted(path.relative_to(ROOT) for each in patterns for path in ROOT.glob(each))


@functools.cache
def names_below(*folders):
    """Return the names of the files and folders below folders, without endings and dashes."""
    found = {path.relative_to(ROOT) for path in sources(*folders)}
    names = {part for path in found for part in path.parent.parts} | {path.stem for path in found}
    return {name.strip("_").split(".")[0] for name in names} - {"src", "native", "packages", ""}


def is_named_after(test, names):
    """Return whether a test's name is one of the names, or begins with one, as test_gguf_parts."""
    words = test.stem.removeprefix("test_").split("_")
    return any("_".join(words[:count]) in names for count in range(1, len(words) + 1))


def is_found(test, named):
    """Return whether a test can be found from what it tests."""
    if test.parts[0] == "packages":
        package, folders = "/".join(test.parts[:2]), test.parts[3:-1]
        shared = ["native"] if (ROOT / package / "native").exists() else []
        names = names_below(package, *shared)
        is_in_folder = bool(names_below(f"{package}/src") & {*folders})
    else:
        folder = test.parts[1]
        places = {path.stem.lower() for path in ROOT.iterdir() if path.suffix in ("", ".md")}
        is_in_folder = folder in places | {path.stem for path in sources("packages/tensor-ops/src")}
        names = names_below(*ABOUT[folder]) if folder in ABOUT else set()
    is_named = any(f"{test.as_posix()}/".startswith((f"{each}/", each)) for each in named)
    return is_named or is_in_folder or is_named_after(test, names)


def named_tests(text):
    """Return the tests, or folders of tests, that a source names in its first lines."""
    head = "\n".join(line.lstrip("/# ") for line in text.splitlines()[:20])
    return [path for each in TESTED_BY.findall(head) for path in re.split(r",\s+|\s+and\s+", each)]


@pytest.fixture(scope="module")
def named():
    texts = [path.read_text(encoding="utf-8") for path in sources("packages", "native", "tests")]
    texts += [path.read_text(encoding="utf-8") for path in ROOT.glob("packages/*/pyproject.toml")]
    texts += [path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/*.py")]
    return {each for text in texts for each in named_tests(text)}


def test_every_test_is_found_from_what_it_tests(named):
    assert [test.as_posix() for test in files_of_tests() if not is_found(test, named)] == []


def test_sources_name_tests_that_are_there(named):
    assert named
    assert [each for each in named if not (ROOT / each).exists()] == []


@pytest.mark.parametrize(
    "text",
    [
        '"""What.\n\nTested by tests/a/test_b.py and tests/c/.\n"""',
        "// What.\n// Tested by tests/a/test_b.py and\n// tests/c/.\n#include <b>",
        "# Tested by tests/a/test_b.py, tests/c/.\n[project]",
    ],
)
def test_names_are_read_from_the_first_lines(text):
    assert named_tests(text) == ["tests/a/test_b.py", "tests/c/"]


def test_a_name_that_leads_nowhere_is_found():
    names = {"gguf", "kernel"}
    assert is_named_after(Path("test_gguf.py"), names)
    assert is_named_after(Path("test_gguf_parts.py"), names)
    assert not is_named_after(Path("test_odd_gguf.py"), names)
    assert not is_named_after(Path("test_ggufs.py"), names)
