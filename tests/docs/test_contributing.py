"""CONTRIBUTING.md is followed word for word in a copy of the checkout: its op, node, backend."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ["conftest.py", "tests/conformance", "tests/decode"]
COPIED = ["pyproject.toml", "packages", "native", "tools", *TESTS]
# The files of two nodes, by backend.
FILES = [path for path in Path(__file__).parent.glob("*_node/*") if path.suffix in (".py", ".cpp")]
NODES = {
    ".py": "packages/tensor-ops-decode/src/tensor_ops_decode/nodes",
    ".cpp": "packages/tensor-ops-cpp/native/decode/nodes",
}
# The inputs of a node under test are rows of float32 tables; the others run together with products,
# or are products themselves.
KEPT = {"embed", "f32", "linear", "add", "scale", "rms_norm", "layer_norm", "silu_mul", "gelu_mul"}
KEPT |= {"softmax", "route", "expert_linear", "combine"}
SOURCES = ("tensor-ops", "tensor-ops-decode")
BUILD_BACKENDS = ["hatchling", "scikit_build_core", "nanobind"]


@pytest.fixture
def checkout(tmp_path):
    """A copy of what a contributor changes, with the nodes that the page tells of.

    Without the ops, nodes and types of weights that would only take time to build.
    """
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__", "build", "dist", "*.so")
    for name in COPIED:
        source, target = ROOT / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    for folder in ("ops", "decode/nodes", "decode/products/formats"):
        for path in copy.glob(f"packages/tensor-ops-cpp/native/{folder}/*.cpp"):
            if path.stem not in KEPT:
                path.unlink()
    for path in FILES:
        shutil.copy(path, copy / NODES[path.suffix])
    # The page does so after the op's installation, which here is the node's too: one build.
    sources = [copy / f"packages/{name}/src" for name in SOURCES]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))}
    subprocess.run([sys.executable, "tools/node_kinds.py"], cwd=copy, env=variables, check=True)
    table = (copy / "native/decode/program/node_kinds.cpp").read_text(encoding="utf-8")
    assert table.count('{"squared_relu"') == table.count('{"scaled_linear"') == 1
    return copy


@pytest.mark.nightly
def test_contributing(checkout, environment, follow, tmp_path):
    pytest.importorskip("gguf", reason="it quantises the weights of nodes under test")
    variables = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # Quick to build: the wheel that users get is built and tested elsewhere.
        # Kernels are hardly optimised, the rest is not, and there are no symbols for a debugger.
        "SKBUILD_CMAKE_DEFINE": "TENSOR_OPS_ONE_LEVEL=ON;CMAKE_CXX_FLAGS_DEBUG=",
        "SKBUILD_CMAKE_BUILD_TYPE": "Debug",
    }
    # Without the build backends at hand, pip fetches them into an environment of their own.
    if all(map(importlib.util.find_spec, BUILD_BACKENDS)) and shutil.which("cmake"):
        # Read as the value of build_isolation, so that 0 turns it off.
        variables |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    reader = environment(
        tmp_path,
        checkout,
        sources=[checkout / f"packages/{name}/src" for name in SOURCES],
        variables=variables,
    )
    follow(Path("CONTRIBUTING.md"), reader)
    names = ["tensor_ops", "tensor_ops_cpp", "tensor_ops_decode", "tensor_ops_reference"]
    files = f"[m.__file__ for m in ({', '.join(names)})]"
    found = reader.bash(f"python -c 'import {', '.join(names)}; print(*{files}, sep=chr(10))'")
    assert all(line.startswith(str(tmp_path)) for line in found.output.splitlines()), found.output
    listed = reader.bash("tensor-ops info cpp; tensor-ops info reference")
    assert listed.output.count("squared_relu") == 2, listed.output
