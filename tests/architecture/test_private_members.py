"""Tests use what any other module may use: none reaches into a private member of our sources."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("packages/*/src", "packages/*/tools", "benchmarks", "ci", "docs/_extensions", "tools")
TESTS = ("packages/*/tests", "tests")
OF_MODELS = ("_norm", "_parameters", "_schema")
PRIVATE = re.compile(r"_[^_]\w*")


def texts(patterns):
    """Return the text of each Python file below some folders, by its name."""
    paths = (path for each in patterns for top in ROOT.glob(each) for path in top.rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def is_own(node):
    return ast.unparse(node) in ("self", "cls", "super()")


def name_of(function):
    """Return the last name of what is called, or nothing if that is another expression."""
    return getattr(function, "attr", getattr(function, "id", ""))


def private_names(tree):
    """Return the private names that a file defines: functions, classes, variables, attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and is_own(node.value):
                names.add(node.attr)
    return {name for name in names if PRIVATE.fullmatch(name)}


def reached(tree, private, own):
    """Return what of the private names a file reads or replaces in other objects than its own.

    Members of modules of others are left out, such as `os._exit`.
    """
    others = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name.partition(".")[0] not in own
    }
    found = []
    for node in ast.walk(tree):
        # Few names are private, and it takes long to write code out.
        if isinstance(node, ast.Attribute) and node.attr in private and not is_own(node.value):
            is_others = ast.unparse(node).partition(".")[0] in others
            found += [(node.lineno, node.attr)] if not is_others else []
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and name_of(node.func).endswith("attr"):
            # Such as monkeypatch.setattr(module, "_name", ...), or with "module._name".
            words = (each for each in node.args if isinstance(each, ast.Constant))
            found += [(node.lineno, str(each.value).rpartition(".")[2]) for each in words]
    return [f"{line}: {name}" for line, name in found if name in private]


@pytest.fixture(scope="module")
def sources():
    return texts(SOURCES)


@pytest.fixture(scope="module")
def private(sources):
    # `_native` is the extension module of a backend. What is written in C++ is tested through it.
    # The others are names that objects of PyTorch and transformers have too.
    found = map(private_names, map(ast.parse, sources.values()))
    return set().union(*found) - {"_native", *OF_MODELS}


@pytest.fixture(scope="module")
def own(sources):
    """The modules and packages that are ours, by the first part of their names."""
    return {part for name in sources for part in Path(name).with_suffix("").parts}


def test_no_test_reaches_into_a_private_member(private, own):
    # Most tests have no private name in them at all, and parsing takes longer than a search.
    found = {
        name: reached(ast.parse(text), private, own)
        for name, text in texts(TESTS).items()
        if not private.isdisjoint(re.findall(r"\w+", text))
    }
    assert len(found) > 20
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "code",
    [
        "model.kernel._secret",
        "from tensor_ops.config.state import _secret",
        "monkeypatch.setattr(state, '_secret', 1)",
        "monkeypatch.setattr('tensor_ops.config.state._secret', 1)",
    ],
)
def test_an_access_is_found(code):
    assert reached(ast.parse(code), {"_secret"}, {"tensor_ops"}) == ["1: _secret"]


@pytest.mark.parametrize("code", ["self._secret", "import os; os._secret", "super()._secret"])
def test_what_is_no_access_is_not_found(code):
    assert reached(ast.parse(code), {"_secret"}, {"tensor_ops"}) == []


def test_private_names_are_found():
    code = "_a = 1\ndef _b(): self._c = _d = 2\nclass _E: _f: int = 3\nother._g = self.h = 4"
    assert private_names(ast.parse(code)) == {"_a", "_b", "_c", "_d", "_E", "_f"}
