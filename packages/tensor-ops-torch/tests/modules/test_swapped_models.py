"""Copies, files, hooks and training of swapped models."""

import copy
import io
import pickle
import random

import numpy as np
import pytest
import torch
from small_models import COUNTS, GemmaNorm, make_model
from torch import nn

from tensor_ops_torch import (
    restore_model,
    swap_modules,
    swap_report,
)


def test_deepcopy(model, x):
    swap_modules(model)
    copied = copy.deepcopy(model)
    assert swap_report(copied).counts == COUNTS
    assert copied.tied is copied[0]
    assert copied[0].weight is not model[0].weight
    assert torch.equal(copied(x), model(x))
    restore_model(copied)
    assert type(copied[0]) is nn.RMSNorm
    assert swap_report(model).counts == COUNTS


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol, x):
    model = make_model()[2:3]
    swap_modules(model)
    loaded = pickle.loads(pickle.dumps(model, protocol))
    assert swap_report(loaded).counts == {"layer_norm": 1}
    assert torch.equal(loaded(x), model(x))
    assert type(restore_model(loaded)[0]) is nn.LayerNorm


def test_saved_models_load_swapped(x):
    model = nn.Sequential(nn.RMSNorm(16), nn.GELU())
    swap_modules(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert swap_report(loaded).counts == {"rms_norm": 1, "gelu": 1}
    assert torch.equal(loaded(x), model(x))


def test_state_dicts_go_either_way(x):
    swapped, plain = make_model(), make_model()
    swap_modules(swapped)
    with torch.no_grad():
        for each in swapped.parameters():
            each.mul_(1.5)
    plain.load_state_dict(swapped.state_dict())
    torch.testing.assert_close(plain(x), swapped(x), rtol=1e-5, atol=1e-6)
    other = make_model()
    swap_modules(other)
    other.load_state_dict(plain.state_dict())
    assert torch.equal(other(x), swapped(x))


def test_hooks_run_before_and_after(model, x):
    seen = []
    for name, module in list(model.named_modules()):
        module.register_forward_pre_hook(lambda *_, name=name: seen.append(f"before {name}"))
        module.register_forward_hook(lambda *_, name=name: seen.append(f"after {name}"))
        module.register_full_backward_hook(lambda *_, name=name: seen.append(f"back {name}"))
    model(x.clone().requires_grad_()).sum().backward()
    wanted = seen.copy()
    seen.clear()
    swap_modules(model, strict=True)
    model(x.clone().requires_grad_()).sum().backward()
    assert seen == wanted


def test_an_activation_with_a_hook_is_called(model, x, calls):
    swap_modules(model)
    seen = []
    handle = model[1].act.register_forward_hook(lambda *_: seen.append("act"))
    assert calls(model[1], x) == ["silu"]
    assert seen == ["act"]
    handle.remove()
    assert calls(model[1], x) == ["silu_mul"]
    assert seen == ["act"]


def test_probing_is_not_noticed(model):
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))
            self.eps = 1e-6
            self.calls, self.seen = 0, []

        def forward(self, x):
            self.calls += 1
            self.seen.append(x.shape)
            return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    model.append(Watched())
    model.append(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)))
    handles = [each.register_forward_hook(_fail) for each in model.modules()]
    handles += [each.register_forward_pre_hook(_fail) for each in model.modules()]
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    states = torch.get_rng_state(), random.getstate(), numpy_state()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        report = swap_report(model)
        assert torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert [each.name for each in report.refused] == ["6"]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert numpy_state() == states[2]
    assert torch.is_grad_enabled()
    assert all(each.grad is None for each in model.parameters())
    assert all(each.training for each in model.modules())
    assert (model[6].calls, model[6].seen) == (0, [])
    assert len(handles) == 2 * len(list(model.modules()))


def numpy_state():
    return np.random.get_state()[1].tolist()  # noqa: NPY002


def _fail(*_):
    pytest.fail("a hook ran")


def test_gradients(model, x):
    inputs = x.clone().requires_grad_(), x.clone().requires_grad_()
    swapped = copy.deepcopy(model)
    swap_modules(swapped)
    model(inputs[0]).square().sum().backward()
    swapped(inputs[1]).square().sum().backward()
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad, rtol=1e-4, atol=1e-5)
    for own, other in zip(swapped.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_frozen_parameters_stay_frozen(model, x):
    model[0].weight.requires_grad_(False)
    swap_modules(model)
    model(x).sum().backward()
    assert model[0].weight.grad is None
    assert model[2].weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_one_plus_weight_follows_the_weight(dtype):
    """The sum has more digits than a half type: 1 + 0.001 is 1 in bfloat16."""
    module = GemmaNorm(64).to(dtype)
    swap_modules(module, strict=True)
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.no_grad():
        module.weight.fill_(0.001)
    small = module(100 * x)
    wide = 100 * x.double()
    exact = 1.001 * wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    bound = max(1e-6, torch.finfo(dtype).eps)
    assert (small.double() / exact - 1).abs().max() <= bound
    module(x).double().square().sum().backward()
    assert module.weight.grad.dtype == dtype
    with torch.no_grad():
        module.weight.add_(1.0)
    torch.testing.assert_close(module(100 * x) / small, torch.full_like(x, 2.001 / 1.001))


def test_attributes_are_read_at_every_call(x, calls):
    model = nn.Sequential(nn.LayerNorm(16), nn.RMSNorm(16), nn.GELU(), nn.SiLU())
    reference = copy.deepcopy(model)
    swap_modules(model)
    for each in (model, reference):
        each[0].eps, each[1].eps = 1.0, 2.0
        each[2].approximate = "tanh"
        each[3].inplace = True
    torch.testing.assert_close(model(x.clone()), reference(x.clone()))
    # An eps of None is a choice of its own: a number in its place is read by the forward.
    assert calls(model, x.clone()) == ["layer_norm"]


def test_a_new_activation_is_used(model, x, calls):
    swap_modules(model)
    model[1].act = nn.ReLU()
    assert calls(model[1], x) == []
    mlp = model[1]
    assert torch.equal(mlp(x), mlp.down(torch.relu(mlp.gate(x)) * mlp.up(x)))


def test_new_linear_layers_are_used(model, x, calls):
    swap_modules(model)
    with torch.no_grad():
        before = model[1](x)
    model[1].gate = nn.Linear(16, 48)
    assert calls(model[1], x) == ["silu_mul"]
    assert not torch.equal(model[1](x), before)
