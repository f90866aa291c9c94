"""Operators that a model calls: what has no kernel fails, and the call changes nothing."""

import pytest
import torch
from torch import nn
from validated import find, model, nvidia, tpu


@torch.library.custom_op("tensor_ops_tests::only_on_cpu", mutates_args=(), device_types="cpu")
def only_on_cpu(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.dropout = nn.Dropout()

    def forward(self, x):
        return self.function(self.dropout(x))


def test_operators_without_a_kernel_fail(gpu, monkeypatch):
    gpu("A100")
    monkeypatch.setattr(torch.version, "cuda", None)  # this PyTorch has no CUDA kernels of its own
    for validate in (nvidia, tpu):
        report = validate(Calls(only_on_cpu), example_inputs=torch.ones(2))
        (check,) = [each for each in report.failed if each.name == "operators"]
        assert "tensor_ops_tests::only_on_cpu" in check.message
        report = validate(Calls(torch.relu), example_inputs=(torch.ones(2),))
        assert [each.name for each in report.failed] == []


def test_the_operators_of_tensor_ops_have_kernels_everywhere():
    import tensor_ops_torch

    for validate in (nvidia, tpu):
        report = validate(Calls(tensor_ops_torch.silu), example_inputs={"x": torch.ones(2)})
        assert not any("tensor_ops::silu" in outcome for outcome in find(report, "operators"))


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (torch.nonzero, "aten::nonzero"),
        (lambda x: x[x > 0], "aten::nonzero|aten::index"),
        (lambda x: x * x.sum().item(), "aten::_local_scalar_dense"),
        (torch.unique, "aten::_unique2"),
    ],
)
def test_shapes_that_depend_on_values(function, names):
    (on_tpu,) = find(tpu(Calls(function), example_inputs=torch.ones(3)), "dynamic shapes")
    assert on_tpu.startswith("warning: ")
    assert any(name in on_tpu for name in names.split("|"))
    (on_nvidia,) = find(nvidia(Calls(function), example_inputs=torch.ones(3)), "dynamic shapes")
    assert on_nvidia.startswith("passed: ")
    (static,) = find(tpu(Calls(torch.relu), example_inputs=torch.ones(3)), "dynamic shapes")
    assert static.startswith("passed: none")


def test_the_call_leaves_the_model_as_it_was():
    network = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout())
    network[1].eval()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    report = tpu(network, example_inputs=torch.randn(8, 4))
    assert find(report, "operators")
    assert (network.training, network[0].training, network[1].training) == (True, True, False)
    for key, value in network.state_dict().items():
        assert torch.equal(value, state[key])


def test_without_inputs_operators_are_skipped_and_wrong_ones_fail():
    report = nvidia(model())
    for name in ("operators", "dynamic shapes"):
        (check,) = [each for each in report.skipped if each.name == name]
        assert "example_inputs" in check.what_to_do
    (outcome,) = find(nvidia(model(), example_inputs=torch.ones(2, 3)), "operators")
    assert outcome.startswith("failed: the model raised RuntimeError: ")
