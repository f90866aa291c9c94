"""The examples in the docstrings of what chooses devices and providers print what they say."""

import doctest
import importlib

import pytest

import tensor_ops_torch

MODULES = ["amp", "device", "providers", "session", "tuning"]


def examples(name):
    module = importlib.import_module(f"tensor_ops_torch.devices.{name}")
    finder = doctest.DocTestFinder()
    return [test for test in finder.find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if name == "session":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    runner, report = doctest.DocTestRunner(), []
    for test in examples(name):
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
    assert runner.tries


@pytest.mark.parametrize(
    "name",
    [
        "configure_torch_backend",
        "create_session",
        "explain_session",
        "resolve_amp_config",
        "resolve_ort_providers",
        "resolve_torch_device",
    ],
)
def test_every_function_has_an_example(name):
    assert ">>> " in getattr(tensor_ops_torch, name).__doc__
