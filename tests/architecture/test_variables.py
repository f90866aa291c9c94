"""Each package declares the environment variables that its sources read."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

from tensor_ops.config import variables

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
NAME = "(TENSOR_OPS_[A-Z0-9_]+)"
# Where C, C++, CMake and pyproject.toml read a variable, or give its name to what does.
READS = re.compile(
    rf'(?:getenv|setting|variable)\("{NAME}"|char k\w+\[\] = "{NAME}"'
    rf'|ENV\{{{NAME}\}}|env = "{NAME}"'
)
SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".cmake", ".txt", ".toml"}


def declared(package):
    if package.name == "tensor-ops":
        return set(variables.OWN)
    content = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    return set(content["project"].get("entry-points", {}).get("tensor_ops.variables", ()))


@functools.cache
def read_in(folder):
    """Return the variables that the sources below a folder read."""
    found = set()
    for path in folder.rglob("*"):
        if path.suffix in SUFFIXES and path.is_file():
            for names in READS.findall(path.read_text(encoding="utf-8")):
                found.update(filter(None, names))
    for path in folder.glob("src/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and re.fullmatch(NAME, str(node.value)):
                found.add(node.value)
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_package_declares_what_it_reads(package):
    assert read_in(package) <= declared(package)


def test_what_is_declared_is_read_somewhere():
    read = [read_in(folder) for folder in (*PACKAGES, ROOT / "native", ROOT / "tests")]
    assert set().union(*map(declared, PACKAGES)) == set().union(*read)


def test_variables_are_found_where_they_are_read():
    cpp, cuda = (read_in(ROOT / "packages" / f"tensor-ops-{name}") for name in ("cpp", "cuda"))
    assert {"TENSOR_OPS_CPP_ISA", "TENSOR_OPS_CPP_POOL_LIMIT"} <= cpp
    assert {"TENSOR_OPS_CUDA_ARCHITECTURES", "TENSOR_OPS_EMULATED_SEED"} <= cuda


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_variable_is_declared_with_the_package_that_reads_it(package):
    content = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    points = content["project"].get("entry-points", {}).get(variables.ENTRY_POINT_GROUP, {})
    assert set(points.values()) <= {package.name.replace("-", "_")}
