"""Functions that work where PyTorch is missing, broken or too old, and errors of the rest."""

import os
import subprocess
import sys

import pytest

TRY = """
import sys
if "{hidden}":
    sys.modules["torch"] = None  # as if nothing of that name were installed
from importlib import import_module
import tensor_ops_devices
import tensor_ops_torch
import tensor_ops_torch.devices.device
from tensor_ops_devices import (
    BackendError,
    HardwareDetector,
    configure_torch_backend,
    resolve_amp_config,
    resolve_torch_device,
)
for use in (
    lambda: resolve_torch_device("auto"),
    lambda: resolve_torch_device("cpu"),
    lambda: tensor_ops_torch.devices.device.resolve_torch_device(None),
    lambda: configure_torch_backend("cpu", "cpu"),
    lambda: resolve_amp_config("cpu"),
    lambda: resolve_amp_config(None),
    lambda: HardwareDetector().detect(),
    lambda: tensor_ops_torch.silu,
    lambda: tensor_ops_torch.swap_modules,
    lambda: tensor_ops_devices.NVIDIABackend,
    lambda: tensor_ops_torch.NVIDIABackend,
    lambda: import_module("tensor_ops_torch.modules"),
    lambda: import_module("tensor_ops_torch.modules"),  # not half a package
    lambda: import_module("tensor_ops_torch.torch_backend"),
    lambda: import_module("tensor_ops_devices.checkpoint"),
    lambda: import_module("tensor_ops_torch.checkpoint"),
):
    try:
        use()
    except BackendError as error:
        assert isinstance(error, RuntimeError) and isinstance(error, ImportError)
        print(f"{{error}} <- {{type(error.__cause__).__name__}}")
    else:
        print("no error")
"""

WITHOUT = """
import sys
sys.modules["torch"] = None
import tensor_ops
from tensor_ops_devices import create_session, explain_session, resolve_ort_providers
from tensor_ops_devices.devices import providers, session
from onnx import TensorProto, helper

print(resolve_ort_providers("auto", ["CPUExecutionProvider", "CUDAExecutionProvider"]))
print(resolve_ort_providers("cpu"))
x, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [3]) for each in "xy")
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
model = helper.make_model(
    graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
)
print(explain_session("cpp").backend, create_session(model).get_providers())
try:
    create_session(model, "gpuu")
except tensor_ops.ConfigError:
    print("unknown backend")
"""


def run(code, tmp_path):
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def outcome(tmp_path, torch=None):
    """Return what a process with a `torch` of its own says to each use of PyTorch."""
    if torch is not None:
        (tmp_path / "torch.py").write_text(torch)
    lines = run(TRY.format(hidden="yes" if torch is None else ""), tmp_path)
    assert len(lines) == TRY.count("    lambda: ")
    assert len(set(lines)) == 1
    return lines[0]


def test_missing(tmp_path):
    said = outcome(tmp_path)
    assert said.startswith("this needs PyTorch: torch is not installed; ")
    assert "install it with: pip install 'torch>=" in said
    assert said.endswith("<- ModuleNotFoundError")


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        (
            "raise OSError('libtorch_cpu.so: cannot open shared object file')",
            "importing torch failed: OSError: libtorch_cpu.so: cannot open shared object file; "
            "install it anew: pip install --force-reinstall 'torch>=2.6' <- OSError",
        ),
        (
            "import a_module_that_is_not_here",
            "a module that it needs is not: No module named 'a_module_that_is_not_here'; "
            "install that, or PyTorch with all it needs: pip install 'torch>=2.6' "
            "<- ModuleNotFoundError",
        ),
        (
            "__version__ = '2.5.1+cu121'",
            "version 2.5.1+cu121 is installed, expected 2.6 or newer; install that: "
            "pip install -U 'torch>=2.6' <- NoneType",
        ),
        ("", "version unknown is installed, expected 2.6 or newer"),
    ],
    ids=["unloadable", "incomplete", "old", "something else"],
)
def test_unimportable(tmp_path, torch, says):
    assert says in outcome(tmp_path, torch)


def test_onnx_runtime_needs_no_pytorch(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert run(WITHOUT, tmp_path) == [
        "['CUDAExecutionProvider', 'CPUExecutionProvider']",
        "['CPUExecutionProvider']",
        "cpp ['CPUExecutionProvider']",
        "unknown backend",
    ]


def test_settings_need_no_pytorch(tmp_path):
    code = """
import sys
sys.modules["torch"] = None
from tensor_ops_devices import KernelPyTorchConfig
config = KernelPyTorchConfig()
config.hardware.nvidia.precision = "float16"
print(config.hardware.nvidia.changed())
"""
    assert run(code, tmp_path) == ["{'precision': 'float16'}"]


def test_names_are_checked_without_pytorch(tmp_path):
    code = """
import sys
sys.modules["torch"] = None
from tensor_ops_devices import BackendError, resolve_torch_device
try:
    resolve_torch_device("cudaa")
except BackendError as error:
    print(error)
"""
    assert run(code, tmp_path)[0].startswith("unknown backend 'cudaa'; did you mean 'cuda'?")
