"""Programs that run on a GPU alone name only what PyTorch has."""

import ast
import functools
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
FILES = [
    *(ROOT / "tools/gpu_checks").glob("*.py"),
    *(ROOT / "benchmarks/gpu").glob("*.py"),
    ROOT / "packages/tensor-ops-torch/tests/operators/test_cuda_tensors.py",
    ROOT / "packages/tensor-ops-devices/tests/backends/test_on_gpu.py",
]


def names_of_torch(path):
    """Return the names that follow ``torch.`` in a file, such as ``cuda.Stream``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    chains = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {chain.removeprefix("torch.") for chain in chains if chain.startswith("torch.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pytorch_has_what_is_named(path):
    for chain in names_of_torch(path):
        functools.reduce(getattr, chain.split("(")[0].split("[")[0].split("."), torch)


def test_there_is_something_to_look_at():
    assert any("testing.assert_close" in names_of_torch(path) for path in FILES)
