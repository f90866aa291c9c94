"""Which providers of ONNX Runtime a backend means; most are not here and only named."""

import sys
from types import ModuleType

import pytest

from tensor_ops import BackendUnavailableError
from tensor_ops_devices import BackendError, resolve_ort_providers

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
ROCM = "ROCMExecutionProvider"
MIGRAPHX = "MIGraphXExecutionProvider"
COREML = "CoreMLExecutionProvider"
AZURE = "AzureExecutionProvider"


@pytest.mark.parametrize(
    ("backend", "available", "expected"),
    [
        ("auto", [COREML, CPU, ROCM, CUDA], [CUDA, CPU]),
        ("auto", [COREML, CPU, MIGRAPHX, ROCM], [ROCM, CPU]),
        ("auto", [COREML, CPU, MIGRAPHX], [MIGRAPHX, CPU]),
        ("auto", [COREML, CPU], [COREML, CPU]),
        ("auto", [AZURE, CPU], [CPU]),
        (None, [CPU, CUDA], [CUDA, CPU]),
        ("cuda", [CPU, CUDA], [CUDA, CPU]),
        ("rocm", [CPU, MIGRAPHX, ROCM], [ROCM, CPU]),
        ("rocm", [CPU, MIGRAPHX], [MIGRAPHX, CPU]),
        ("mps", [CPU, COREML], [COREML, CPU]),
        ("cpu", [CUDA, CPU], [CPU]),
        ("cpu", (name for name in [CPU]), [CPU]),
    ],
)
def test_order(backend, available, expected):
    assert resolve_ort_providers(backend, available) == expected


def test_the_installed_onnx_runtime_is_asked_by_default():
    onnxruntime = pytest.importorskip("onnxruntime")
    here = onnxruntime.get_available_providers()
    assert resolve_ort_providers("cpu") == [CPU]
    assert resolve_ort_providers("auto") == resolve_ort_providers("auto", here)


@pytest.mark.parametrize(
    ("backend", "lacks", "install"),
    [
        ("cuda", CUDA, "pip install onnxruntime-gpu"),
        ("rocm", f"{ROCM} and {MIGRAPHX}", "pip install onnxruntime-migraphx"),
        ("mps", COREML, "macOS"),
    ],
)
def test_unavailable_providers(backend, lacks, install):
    with pytest.raises(BackendUnavailableError) as caught:
        resolve_ort_providers(backend, [AZURE, CPU])
    for text in (repr(backend), f"built without {lacks}", f"{AZURE}, {CPU}", install):
        assert text in str(caught.value)
    assert caught.value.name == backend


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_no_provider_at_all(backend):
    with pytest.raises(BackendError, match=f"built without {CPU}, it has none"):
        resolve_ort_providers(backend, [])


def test_unknown_backend():
    with pytest.raises(BackendError, match=r"unknown backend 'cudda'; did you mean 'cuda'\?"):
        resolve_ort_providers("cudda", [CPU])


def test_wrong_types():
    with pytest.raises(TypeError, match="must be a string"):
        resolve_ort_providers(1, [CPU])
    with pytest.raises(TypeError, match="several names"):
        resolve_ort_providers("cpu", CPU)


class TestOnnxRuntime:
    def test_missing(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(BackendError, match=r"pip install onnxruntime"):
            resolve_ort_providers("auto")

    def test_unimportable(self, monkeypatch, tmp_path):
        (tmp_path / "onnxruntime.py").write_text("raise OSError('libonnxruntime.so is lost')")
        monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(BackendError, match=r"libonnxruntime.so is lost; install it anew: pip"):
            resolve_ort_providers("auto")

    def test_an_empty_folder_of_that_name(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))
        with pytest.raises(BackendError, match="pip install --force-reinstall onnxruntime"):
            resolve_ort_providers("auto")
