"""Swapping and restoring: what stays as it was, and what a swapped module survives."""

import json
import pickle

import pytest
import torch
from small_models import COUNTS
from torch import nn

import tensor_ops
import tensor_ops_torch
from tensor_ops_torch import (
    SwapError,
    SwapReport,
    restore_model,
    swap_modules,
    swap_report,
)


def test_everything_but_forward_stays(model, x):
    state = {name: each.clone() for name, each in model.state_dict().items()}
    before = {
        name: (id(each), type(each), dict(vars(each))) for name, each in model.named_modules()
    }
    parameters = [(name, id(each), each.requires_grad) for name, each in model.named_parameters()]
    text = repr(model)
    swap_modules(model, strict=True)
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(each, state[name]) for name, each in model.state_dict().items())
    assert [
        (name, id(each), each.requires_grad) for name, each in model.named_parameters()
    ] == parameters
    for name, module in model.named_modules():
        identity, kind, fields = before[name]
        assert id(module) == identity
        assert isinstance(module, kind)
        assert vars(module).keys() == fields.keys()
        assert all(vars(module)[each] is fields[each] for each in fields)
    assert repr(model) == text
    assert model.tied is model[0]


def test_results_are_the_same(model, x):
    before = model(x)
    report = swap_modules(model, strict=True)
    assert report.counts == COUNTS
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-6)


def test_the_ops_run(model, x, calls):
    swap_modules(model)
    assert calls(model, x) == [
        *("rms_norm", "silu_mul", "layer_norm", "rms_norm", "gelu", "rms_norm")
    ]


def test_restored(model, x):
    before, kinds = model(x), [type(each) for each in model.modules()]
    swap_modules(model)
    assert [type(each) for each in model.modules()] != kinds
    assert restore_model(model) is model
    assert [type(each) for each in model.modules()] == kinds
    assert torch.equal(model(x), before)
    assert restore_model(model) is model


def test_a_second_swap_changes_nothing(model):
    first = swap_modules(model)
    kinds = [type(each) for each in model.modules()]
    assert swap_modules(model) == first
    assert [type(each) for each in model.modules()] == kinds


def test_modules_of_one_kind_share_a_class():
    model = nn.Sequential(nn.LayerNorm(8), nn.LayerNorm(8))
    swap_modules(model)
    assert type(model[0]) is type(model[1])


def test_a_model_that_is_one_module(x):
    model = nn.LayerNorm(16)
    assert swap_modules(model).counts == {"layer_norm": 1}
    assert swap_report(model).entries[0].name == ""


def test_shared_modules_are_swapped_once(model):
    (entry,) = [each for each in swap_modules(model).entries if each.name == "0"]
    assert entry.also == ("tied",)


def test_prepared_models(model):
    assert tensor_ops_torch.prepare_model_with_custom_kernels(model) is model
    assert swap_report(model).counts == COUNTS


def test_the_name_that_backends_have_for_something_else_is_deprecated(model):
    with pytest.warns(DeprecationWarning, match=r"swaps.*_with_custom_kernels.*method.*moves"):
        prepare = tensor_ops_torch.prepare_model
    assert prepare(model) is model
    assert swap_report(model).counts == COUNTS
    assert "prepare_model" not in dir(tensor_ops_torch)


def test_report_of_what_is_not_swapped_yet(model):
    kinds = [type(each) for each in model.modules()]
    report = swap_report(model)
    assert [type(each) for each in model.modules()] == kinds
    assert not report.swapped
    assert not report.refused
    assert {each.op for each in report.entries} == set(COUNTS)
    assert "can be swapped" in str(report)


def test_strict():
    model = nn.Sequential(nn.GELU(), nn.SiLU(inplace=True), nn.LayerNorm((2, 8)))
    with pytest.raises(SwapError) as caught:
        swap_modules(model, strict=True)
    assert [each.name for each in caught.value.report.refused] == ["1", "2"]
    assert "1 (SiLU): its forward writes to its input" in str(caught.value)
    assert "2 (LayerNorm): its normalized_shape is (2, 8), expected one axis" in str(caught.value)
    assert type(model[0]) is nn.GELU
    assert swap_modules(model).counts == {"gelu": 1}
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.report) == (str(caught.value), caught.value.report)


@pytest.mark.parametrize("function", [swap_modules, swap_report, restore_model])
def test_what_is_no_model(function):
    with pytest.raises(TypeError, match="model is of type list, expected a Module"):
        function([nn.GELU()])


def test_report():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.SiLU(inplace=True))
    report = swap_modules(model)
    assert str(report).splitlines() == [
        "1 of 2 modules swapped",
        "  module  class  op    outcome",
        "  1       GELU   gelu  swapped",
        "  2       SiLU   -     its forward writes to its input (inplace=True)",
    ]
    found = json.loads(json.dumps(report.as_dict()))
    assert (found["swapped"], found["refused"], found["counts"]) == (1, 1, {"gelu": 1})
    assert found["modules"][1]["reason"].startswith("its forward writes to its")
    assert str(SwapReport()).startswith("0 modules swapped: nothing in the model looks like an op")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_the_shorter_way_without_gradients_gives_the_same(dtype, model, x):
    """Without gradients nothing of PyTorch's dispatcher is needed."""
    swap_modules(model.to(dtype))
    wanted = model(x.to(dtype))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(model(x.to(dtype)), wanted)


def test_the_profiler_sees_the_ops(model, x):
    swap_modules(model)
    with torch.no_grad(), torch.profiler.profile() as profile:
        model(x)
    names = {each.key for each in profile.key_averages()}
    assert {"tensor_ops::rms_norm", "tensor_ops::silu_mul"} <= names


def test_backends_are_chosen_as_for_any_op(model, x):
    swap_modules(model)
    with torch.no_grad():
        wanted = model(x)
        with tensor_ops.use_backend("python"):
            torch.testing.assert_close(model(x), wanted)
