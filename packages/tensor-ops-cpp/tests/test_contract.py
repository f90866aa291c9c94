"""The module as a backend, and as a module."""

import inspect
import pickle
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np
import pytest
from cpp_cases import OPS

import tensor_ops.ops
import tensor_ops_cpp
from tensor_ops_cpp import _native, compile_program

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


@pytest.mark.parametrize("op", OPS)
def test_signature_is_that_of_tensor_ops_with_a_number_of_threads(op):
    dispatched = str(tensor_ops.ops.OPS[op].signature)
    expected = dispatched.replace("backend=None", "num_threads=None")
    assert str(inspect.signature(OPS[op])) == expected


def test_every_op_is_one_file():
    folder = Path(__file__).parents[1] / "native" / "ops"
    assert {path.stem for path in folder.glob("[!_]*.cpp")} == set(OPS)


@pytest.mark.parametrize("op", OPS)
def test_docstring_has_the_sections_of_numpydoc(op):
    doc = inspect.getdoc(OPS[op])
    for title in ("Parameters", "Returns", "Raises", "Notes"):
        assert f"\n{title}\n{'-' * len(title)}\n" in doc
    for name in inspect.signature(OPS[op]).parameters:
        assert f"\n{name} : " in doc


@pytest.mark.parametrize(
    ("op", "note"),
    [
        ("rms_norm", "weight may be float32 instead:"),
        ("add_rms_norm", "weight may be float32 instead, and so may residual:"),
        ("layer_norm", "weight and bias may be float32 instead:"),
        ("rope", "cos and sin may be float32 instead:"),
    ],
)
def test_docstring_tells_what_may_be_float32_beside_a_half_x(op, note):
    assert f"Where x is float16 or bfloat16, {note}" in OPS[op].__doc__
    assert ("shape and dtype of residual" in OPS[op].__doc__) == (op == "add_rms_norm")


def test_entry_point():
    (entry,) = entry_points(group="tensor_ops.backends", name="cpp")
    assert entry.load() is tensor_ops_cpp


def test_probe():
    assert tensor_ops_cpp.API_VERSION == 1
    found = {"available": True, "reason": None, "devices": ["cpu"], "kind": "cpu"}
    assert tensor_ops_cpp.probe() == found


def test_info():
    info = tensor_ops_cpp.info()
    assert list(info) == INFO_KEYS
    assert info["name"] == "cpp"
    assert info["version"] == version("tensor-ops-cpp") == tensor_ops_cpp.__version__
    assert info["compute_units"] >= 1
    assert info["max_memory"] > 2**20
    assert info["dtypes"] == ["float32", "float16", "bfloat16", "float64"]
    assert info["ops"] == sorted(OPS)


@pytest.mark.parametrize("op", OPS)
def test_supports_what_it_has(op):
    for name in tensor_ops_cpp.info()["dtypes"]:
        assert tensor_ops_cpp.supports(op, name, "cpu") is None


@pytest.mark.parametrize(
    "question",
    [("attention", "float32", "cpu"), ("silu", "int8", "cpu"), ("silu", "float32", "cuda")],
)
def test_supports_gives_a_reason(question):
    assert isinstance(tensor_ops_cpp.supports(*question), str)


def test_optimization_info_prints_a_line_per_key():
    info = tensor_ops_cpp.get_optimization_info()
    assert isinstance(info, dict)
    assert len(str(info).splitlines()) == len(info)
    assert info["level"] in str(info)
    assert info["level"] == tensor_ops_cpp.simd_level
    assert info["openmp"] is tensor_ops_cpp.has_openmp


def test_configuration_is_what_was_compiled():
    found = dict(word.split("=") for word in tensor_ops_cpp.configuration().split())
    info = tensor_ops_cpp.get_optimization_info()
    assert found["levels"].split(",") == info["compiled_levels"]
    assert found["decode"] == ("on" if info["decode"] else "off")
    assert info["decode"] is tensor_ops_cpp.CAPABILITIES["runs_programs"]


def test_a_build_without_decode_programs_says_so(monkeypatch):
    monkeypatch.setattr(_native, "runs_programs", False)
    reason = tensor_ops_cpp.supports_program("{}")
    assert "built without decode programs (TENSOR_OPS_DECODE=OFF)" in reason
    for call in (
        lambda: tensor_ops_cpp.packed_layout("{}"),
        lambda: tensor_ops_cpp.program_memory("{}"),
        lambda: tensor_ops_cpp.packed_checksum(np.zeros(1, np.uint8)),
        lambda: compile_program("{}", {}),
    ):
        with pytest.raises(NotImplementedError, match="build it again without that option"):
            call()


@pytest.mark.parametrize("op", OPS)
def test_ops_can_be_pickled(op):
    assert pickle.loads(pickle.dumps(OPS[op])) is OPS[op]


def test_import_needs_numpy_only():
    code = (
        "import sys; sys.modules['ml_dtypes'] = None; sys.modules['pybind11'] = None\n"
        "import numpy as np, tensor_ops_cpp as t\n"
        "assert t.silu(np.zeros(3)).tolist() == [0, 0, 0]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_result_is_a_fresh_contiguous_base_array(dtype):
    class Sub(np.ndarray):
        pass

    x = np.ones((4, 6), dtype).T.view(Sub)
    y = tensor_ops_cpp.silu(x)
    assert type(y) is np.ndarray
    assert y.flags.c_contiguous
    assert y.shape == x.shape
    assert y.dtype == dtype
