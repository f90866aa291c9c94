"""The modules of the package import each other in one direction."""

import ast
import graphlib
from pathlib import Path

import tensor_ops_opencl

FOLDER = Path(tensor_ops_opencl.__file__).parent
PACKAGE = FOLDER.name


def name_of(file):
    """Return the name that imports a file of the package."""
    parts = (PACKAGE, *file.relative_to(FOLDER).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file, modules):
    """Return the modules of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = f"{PACKAGE}.{node.module}" if node.level else node.module
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names if names <= modules else {base} | names
    return found & modules


def test_there_is_no_import_circle():
    files = {name_of(file): file for file in FOLDER.rglob("*.py")}
    graph = {name: imports_of(file, files.keys()) for name, file in files.items()}
    assert graph[f"{PACKAGE}.op"] > {f"{PACKAGE}.{name}" for name in ("call", "checks")}
    graphlib.TopologicalSorter(graph).prepare()  # which raises CycleError
