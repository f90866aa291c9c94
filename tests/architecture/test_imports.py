"""Imports between modules: no circles, and nothing that ARCHITECTURE.md does not allow."""

import ast
import functools
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCES = {path.name: path for path in ROOT.glob("packages/*/src/*") if path.is_dir()}


def modules(package):
    """Return the files of a package by the names of their modules."""
    found = {}
    for path in SOURCES[package].rglob("*.py"):
        parts = [package, *path.relative_to(SOURCES[package]).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imported(path):
    """Return the modules, or names in modules, that a file imports.

    Those that it imports within functions, and for type checkers only, are among them.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:  # in files that two packages share
                assert node.level == 1, f"{path} imports from outside of its folder"
                package = path.parts[path.parts.index("src") + 1 : -1]
                origin = ".".join((*package, origin)).rstrip(".")
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return names


def graph(package):
    """Return for each module of a package the modules of it that it imports."""
    files = modules(package)
    edges = {}
    for module, path in files.items():
        # Compiled modules are in no file of Python, and import nothing of ours.
        names = {name for name in imported(path) if not name.startswith(f"{package}._native")}
        edges[module] = {owner(name, files) for name in names} - {"", module}
    return edges


def graph_of_scripts():
    """Return for each file that is in no package of ours the other such files that it imports."""
    roots = {}  # for each folder that such files are imported from, those files by their modules
    for top in ("benchmarks", "ci", "examples", "tests", "tools", "packages/*/tests"):
        for path in (path for folder in ROOT.glob(top) for path in folder.rglob("*.py")):
            root = next(each for each in path.parents if not (each / "__init__.py").exists())
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            roots.setdefault(root, {})[module] = path
    everywhere = {name: path for files in roots.values() for name, path in files.items()}
    edges = {}
    for files in roots.values():
        found = everywhere | files  # of two files with the same name, the one beside it
        for module, path in files.items():
            owners = {owner(name, found) for name in imported(path)} - {"", module}
            edges[shown(path)] = {shown(found[each]) for each in owners}
    return edges


def shown(path):
    return path.relative_to(ROOT).as_posix()


def owner(name, files):
    """Return the module in which a name is, or nothing if it is in none of the files."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def circle(edges):
    """Return modules that import each other in a circle, none if there is no circle."""
    done = set()

    def visit(module, way):
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for each in sorted(edges[module]):
            if found := visit(each, [*way, module]):
                return found
        done.add(module)
        return []

    return next((found for module in edges if (found := visit(module, []))), [])


def rows(heading):
    """Return the cells of the table below a line of the page."""
    lines = PAGE.partition(heading)[2].lstrip().splitlines()[1:]
    table = itertools.takewhile(bool, lines)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def words(cell):
    return re.findall(r"`([^`]*)`", cell)


@pytest.mark.parametrize("package", sorted(SOURCES))
def test_no_modules_import_each_other_in_a_circle(package):
    assert circle(graph(package)) == []


def test_no_scripts_or_tests_import_each_other_in_a_circle():
    edges = graph_of_scripts()
    assert "benchmarks/pages.py" in edges["benchmarks/comparison/report.py"]
    assert "tests/decode/helpers/byte_models.py" in edges["tests/decode/conftest.py"]
    assert circle(edges) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_packages_import_what_the_page_allows():
    table = rows("| package | may import |")
    assert {words(package)[0] for package, _ in table} == SOURCES.keys()
    for package, cell in table:
        [name], allowed = words(package), words(cell)
        for module, path in modules(name).items():
            others = {each for each in imported(path) if each.split(".")[0] in SOURCES}
            for other in others - {each for each in others if each.split(".")[0] == name}:
                assert is_allowed(other, allowed), f"{module} imports {other}"


def is_allowed(name, allowed):
    """Return whether a name is in an allowed module itself, which has a name for the public."""
    return any(name == each or name.rpartition(".")[0] == each for each in allowed)


LAYERED = {"tensor_ops": "| layer, the lowest first", "tensor_ops_decode": "| layer of the engine"}


@pytest.mark.parametrize("package", LAYERED)
def test_modules_import_only_those_of_their_layer_or_below(package):
    heading = next(line for line in PAGE.splitlines() if line.startswith(LAYERED[package]))
    layers = [words(cell) for cell, _ in rows(heading)]
    edges = graph(package)
    level = {}
    for module in edges:
        name = module.removeprefix(f"{package}.")
        names_of = {name, f"{name.partition('.')[0]}/"}
        found = [n for n, names in enumerate(layers) if names_of & set(names)]
        assert len(found) == 1, f"{module} is in {len(found)} layers of ARCHITECTURE.md"
        level[module] = found[0]
    for name in (name for names in layers for name in names):
        there = any(
            (
                f"{module}.".startswith(f"{package}.{name[:-1]}.")
                if name.endswith("/")
                else name in (module, module.removeprefix(f"{package}."))
            )
            for module in edges
        )
        assert there, f"there is no {name}"
    for module, others in edges.items():
        for other in others:
            assert level[other] <= level[module], f"{module} imports {other} of a higher layer"
