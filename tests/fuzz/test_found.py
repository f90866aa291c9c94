"""The fuzzer's finds stay found: its inputs, and a few of any kind, without a fuzzer."""

import importlib
import os
import random
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOUND = sorted(HERE.glob("found/*/*"))
NEEDED = {
    "binding": ["tensor_ops_cpp"],
    "interface": [f"tensor_ops_{os.environ.get('FUZZED_BACKEND', 'cpp')}"],
    "decode_programs": ["tensor_ops_cpp", "tensor_ops_decode"],
    "exported_folders": ["tensor_ops_cpp", "tensor_ops_decode"],
    "packed_files": ["tensor_ops_cpp", "tensor_ops_decode"],
    "model_files": ["tensor_ops_decode"],
    "model_settings": ["tensor_ops_decode"],
    "model_tokenizers": ["tensor_ops_decode", "tokenizers"],
    "chat_templates": ["tensor_ops_decode", "jinja2"],
    "model_commands": ["tensor_ops_decode", "tokenizers", "jinja2"],
    "swapped_modules": ["torch", "tensor_ops_torch"],
}


@pytest.fixture
def target(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(HERE)

    def target(name):
        for package in NEEDED.get(name, ()):
            pytest.importorskip(package)
        monkeypatch.setenv("TENSOR_OPS_CONFIG", "")  # which a target sets, and the end takes back
        return importlib.import_module(name).try_input

    yield target
    if native := sys.modules.get("tensor_ops_cpp"):
        native._native.set_streaming_threshold(0)  # what was measured


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_found(target, path):
    target(path.parent.name)(path.read_bytes())


@pytest.mark.sampled(3, "name")
@pytest.mark.parametrize("name", [*NEEDED, "configuration", "selections", "command"])
def test_any(target, name):
    draw = random.Random(name)
    try_input = target(name)
    module = sys.modules[name]
    for data in getattr(module, "SEEDS", []):
        try_input(data)
    for _ in range(getattr(module, "RUNS", 200)):
        try_input(draw.randbytes(draw.choice([10, 40, 120])))
