"""The CUDA backend's own facts, besides what tests/conformance asks of all backends."""

import doctest
import inspect
from pathlib import Path

import pytest

import tensor_ops_cuda

DTYPES = ["float32", "float16", "bfloat16", "float64"]
OPS = tensor_ops_cuda.ops
FUNCTIONS = [
    *("DeviceArray", "devices", "get_cuda_info", "info", "pool_info", "probe", "supports"),
    *("compile_program", "driver_version", "program_memory", "program_memory_limit"),
    *("supports_program", "to_device"),
]


def test_every_op_is_one_file():
    folder = Path(__file__).parents[1] / "native" / "ops"
    assert {path.stem for path in folder.glob("*.cu")} == set(OPS)


@pytest.mark.parametrize("name", [*OPS, *FUNCTIONS])
def test_examples_run(name, device):
    runner = doctest.DocTestRunner()
    thing = getattr(tensor_ops_cuda, name)
    names = {name: thing}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), names, name, None, None)
    assert test.examples
    assert runner.run(test).failed == 0


def test_public_names():
    for name in tensor_ops_cuda.__all__:
        assert hasattr(tensor_ops_cuda, name)
    assert set(OPS) <= set(tensor_ops_cuda.__all__)


def test_probe(device):
    found = tensor_ops_cuda.probe()
    assert (found["available"], found["reason"]) == (True, None)
    assert found["kind"] == "gpu"
    assert found["devices"][0] == "cpu"
    assert f"cuda:{device.index}" in found["devices"]


def test_info(device):
    info = tensor_ops_cuda.info()
    assert info["device_name"] == device.name
    assert info["device_count"] == len(tensor_ops_cuda.devices())
    assert info["compute_capability"] >= 75
    assert info["max_shared_memory"] >= 48 * 1024
    assert info["dtypes"] == DTYPES


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("where", ["cuda", "cuda:0"])
@pytest.mark.parametrize("op", OPS)
def test_supports_what_it_has(op, where):
    assert [tensor_ops_cuda.supports(op, name, where) for name in DTYPES] == [None] * 4


@pytest.mark.parametrize(
    "question",
    [
        ("silu", "float32", "cuda:99"),
        ("silu", "float32", "cuda:x"),
    ],
)
def test_supports_gives_a_reason(question):
    assert isinstance(tensor_ops_cuda.supports(*question), str)


def test_cuda_info_prints_every_device(device):
    info = tensor_ops_cuda.get_cuda_info()
    assert isinstance(info, dict)
    assert info["device"] == device.index
    assert info["runtime"].count(".") == 1
    assert any(name.startswith("compute_") for name in info["architectures"])
    assert [each["index"] for each in info["devices"]] == list(range(len(info["devices"])))
    assert str(device) in str(info)
