"""The module as a backend, and as a module."""

import doctest
import inspect
import pickle
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np
import pytest

import tensor_ops.ops
import tensor_ops_cuda

INFO_KEYS = [
    "name",
    "display_name",
    "available",
    "reason",
    "version",
    "device_name",
    "device_count",
    "compute_capability",
    "compute_units",
    "max_memory",
    "max_shared_memory",
    "dtypes",
    "ops",
]
DTYPES = ["float32", "float16", "bfloat16", "float64"]
OPS = tensor_ops_cuda.ops
FUNCTIONS = [
    *("DeviceArray", "devices", "get_cuda_info", "info", "pool_info", "probe", "supports"),
    *("driver_version", "to_device"),
]


@pytest.mark.parametrize("op", OPS)
def test_signature_is_that_of_tensor_ops_without_a_backend(op):
    dispatched = str(tensor_ops.ops.OPS[op].signature)
    assert str(inspect.signature(OPS[op])) == dispatched.replace(", backend=None", "")


def test_every_op_is_one_file():
    folder = Path(__file__).parents[1] / "native" / "ops"
    assert {path.stem for path in folder.glob("*.cu")} == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_docstring_has_the_sections_of_numpydoc(op):
    doc = inspect.getdoc(OPS[op])
    for title in ("Parameters", "Returns", "Raises", "Notes", "Examples"):
        assert f"\n{title}\n{'-' * len(title)}\n" in doc
    for name in inspect.signature(OPS[op]).parameters:
        assert f"{name} : " in doc


@pytest.mark.parametrize("name", [*OPS, *FUNCTIONS])
def test_examples_run(name, device):
    runner = doctest.DocTestRunner()
    thing = getattr(tensor_ops_cuda, name)
    names = {name: thing}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), names, name, None, None)
    assert test.examples
    assert runner.run(test).failed == 0


def test_entry_point():
    (entry,) = entry_points(group="tensor_ops.backends", name="cuda")
    assert entry.load() is tensor_ops_cuda


def test_public_names():
    for name in tensor_ops_cuda.__all__:
        assert hasattr(tensor_ops_cuda, name)
    assert set(OPS) <= set(tensor_ops_cuda.__all__)


def test_probe(device):
    assert tensor_ops_cuda.API_VERSION == 1
    found = tensor_ops_cuda.probe()
    assert (found["available"], found["reason"]) == (True, None)
    assert found["kind"] == "gpu"
    assert found["devices"][0] == "cpu"
    assert f"cuda:{device.index}" in found["devices"]


def test_info(device):
    info = tensor_ops_cuda.info()
    assert list(info) == INFO_KEYS
    assert info["name"] == "cuda"
    assert info["version"] == version("tensor-ops-cuda") == tensor_ops_cuda.__version__
    assert info["device_name"] == device.name
    assert info["device_count"] == len(tensor_ops_cuda.devices())
    assert info["compute_capability"] >= 75
    assert info["compute_units"] >= 1
    assert info["max_memory"] > 2**20
    assert info["max_shared_memory"] >= 48 * 1024
    assert info["dtypes"] == DTYPES
    assert info["ops"] == sorted(OPS)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("where", ["cpu", "cuda", "cuda:0"])
@pytest.mark.parametrize("op", OPS)
def test_supports_what_it_has(op, where):
    assert [tensor_ops_cuda.supports(op, name, where) for name in DTYPES] == [None] * 4


@pytest.mark.parametrize(
    "question",
    [
        ("attention", "float32", "cpu"),
        ("silu", "int8", "cpu"),
        ("silu", "float32", "opencl:0"),
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


@pytest.mark.parametrize("op", OPS)
def test_ops_can_be_pickled(op):
    assert pickle.loads(pickle.dumps(OPS[op])) is OPS[op]


@pytest.mark.usefixtures("device")
def test_import_and_use_need_no_ml_dtypes(python):
    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import numpy as np, tensor_ops_cuda as t\n"
        "assert t.silu(np.zeros(3, np.float32)).tolist() == [0, 0, 0]\n"
    )
    assert python(code) == ""


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("rows", [4, 400])
def test_result_is_a_plain_contiguous_array(rows):
    class Sub(np.ndarray):
        pass

    x = np.ones((rows, 60), np.float32).T.view(Sub)
    y = tensor_ops_cuda.silu(x)
    assert type(y) is np.ndarray
    assert y.flags.c_contiguous
    assert y.flags.writeable
    assert y.flags.aligned
    assert y.shape == x.shape
