"""Swapping and restoring: what stays as it was, and what a swapped module survives."""

import copy
import doctest
import io
import itertools
import json
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

import tensor_ops
import tensor_ops_torch
from tensor_ops_torch import (
    SwapError,
    SwapReport,
    modules,
    restore_model,
    swap_modules,
    swap_report,
)


class SwiGLU(nn.Module):
    def __init__(self, hidden=16, inner=48):
        super().__init__()
        self.gate = nn.Linear(hidden, inner)
        self.up = nn.Linear(hidden, inner)
        self.act = nn.SiLU()
        self.down = nn.Linear(inner, hidden)

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class GemmaNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-0.5, 0.5, n))
        self.eps = 1e-6

    def forward(self, x):
        y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (y * (1.0 + self.weight.float())).type_as(x)


def make_model():
    torch.manual_seed(0)
    layers = (nn.RMSNorm(16, eps=1e-6), SwiGLU(), nn.LayerNorm(16), GemmaNorm(16), nn.GELU("tanh"))
    model = nn.Sequential(*layers)
    # The same module once more.
    model.tied = model[0]
    return model


COUNTS = {"rms_norm": 2, "silu_mul": 1, "silu": 1, "layer_norm": 1, "gelu": 1}


@pytest.fixture
def model():
    return make_model()


@pytest.fixture
def x():
    return torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def calls(monkeypatch):
    """Which operators run, by name."""
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "tensor_ops":
                seen.append(func._schema.name.removeprefix("tensor_ops::"))
            return func(*args, **(kwargs or {}))

    def run(function, *args):
        seen.clear()
        with Mode():
            function(*args)
        return list(seen)

    return run


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
    assert "2 (LayerNorm): its forward uses weight of shape (2, 8)" in str(caught.value)
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
        "  2       SiLU   -     its forward writes to its input (inplace=True), line 475",
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


# Copies and files


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


# Hooks


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


# Training


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


# Calls that are not what was recognised


def _views(x):
    yield "keyword", lambda module: module(**{_argument(module): x})
    yield "not contiguous", lambda module: module(x.transpose(0, 1))
    yield "double", lambda module: copy.deepcopy(module).double()(x.double())
    yield "subclass", lambda module: module(x.as_subclass(_Subclass))


class _Subclass(torch.Tensor):
    pass


def _argument(module):
    import inspect

    return next(iter(inspect.signature(module.forward).parameters))


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_other_calls_go_to_the_original(index, autocast, model, x):
    reference, swapped = model[index], copy.deepcopy(model[index])
    swap_modules(swapped)
    for name, call in _views(x):
        if name == "keyword" and index != 1:
            continue
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            wanted = call(reference)
            found = call(swapped)
        assert (found.dtype, found.stride(), type(found)) == (
            wanted.dtype,
            wanted.stride(),
            type(wanted),
        )
        if index != 1 and (autocast or name in ("not contiguous", "subclass")):
            assert torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted)


def test_keywords():
    x = torch.randn(2, 16)
    for module, name in ((nn.SiLU(), "input"), (nn.LayerNorm(16), "input"), (GemmaNorm(16), "x")):
        wanted = module(**{name: x})
        swap_modules(module)
        assert torch.equal(module(**{name: x}), wanted)


@pytest.mark.parametrize(
    "call", [lambda m: m(), lambda m: m(1.5), lambda m: m(torch.ones(2, 15)), lambda m: m(None)]
)
def test_wrong_calls_fail_as_before(call):
    module = nn.LayerNorm(16)
    with pytest.raises((TypeError, RuntimeError)) as wanted:
        call(module)
    swap_modules(module)
    with pytest.raises(wanted.type) as found:
        call(module)
    assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize(
    ("given", "own"),
    list(itertools.permutations((torch.float32, torch.bfloat16, torch.float64), 2)),
    ids=str,
)
def test_dtypes_that_differ(given, own):
    """LlamaRMSNorm takes x of another dtype than its weight, and so does what replaces it."""
    module = GemmaNorm(16).to(own)
    x = torch.randn(3, 16).to(given)
    wanted = module(x)
    swap_modules(module)
    assert torch.equal(module(x), wanted)


def test_a_model_that_is_cast_after_the_swap(model, x):
    swap_modules(model)
    model.half()
    plain = restore_model(copy.deepcopy(model))
    torch.testing.assert_close(model(x.half()), plain(x.half()), rtol=5e-3, atol=5e-3)
    assert model(x.half()).dtype == torch.float16


def test_meta_tensors(model):
    swap_modules(model)
    with torch.device("meta"):
        x = torch.empty(2, 3, 16)
    assert model.to("meta")(x).shape == (2, 3, 16)


def test_views_that_negate_lazily():
    module = nn.SiLU()
    swap_modules(module)
    lazy = torch.complex(torch.ones(1), torch.ones(1)).conj().imag
    assert lazy.is_neg()
    with torch.no_grad():
        assert torch.equal(module(lazy), functional.silu(torch.tensor([-1.0])))


def test_sparse_and_nested_tensors():
    module, reference = nn.SiLU(), nn.SiLU()
    swap_modules(module)
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    assert torch.equal(module(nested).values(), reference(nested).values())


# What is built on modules


def test_compile(model, x):
    swap_modules(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()
    assert model[0].weight.grad is not None
    restore_model(model)
    torch.testing.assert_close(compiled(x), model(x))


def test_export(model, x):
    swap_modules(model)
    exported = torch.export.export(model, (x,), strict=True)
    torch.testing.assert_close(exported.module()(x), model(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_trace(model, x):
    swap_modules(model)
    traced = torch.jit.trace(model, (x,))
    torch.testing.assert_close(traced(x), model(x), rtol=1e-5, atol=1e-6)
    assert "tensor_ops::" not in str(traced.inlined_graph), "a trace runs anywhere"


def test_functional_transforms(model, x):
    reference = copy.deepcopy(model)
    swap_modules(model)
    parameters = dict(model.named_parameters())

    def call(module):
        return lambda parameters, x: torch.func.functional_call(module, parameters, (x,)).sum()

    for transform in (torch.func.grad, lambda f: torch.vmap(f, in_dims=(None, 0))):
        found = transform(call(model))(parameters, x)
        wanted = transform(call(reference))(parameters, x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_tangents(model, x):
    """Forward-mode derivatives are those of the modules' own forwards."""
    reference = copy.deepcopy(model)
    swap_modules(model)
    found, wanted = (torch.func.jvp(each, (x,), (x,))[1] for each in (model, reference))
    torch.testing.assert_close(found, wanted)


def test_parametrization_after_the_swap(model, x):
    swap_modules(model)
    parametrize.register_parametrization(model[0], "weight", nn.Softplus())
    torch.testing.assert_close(
        model[0](x), nn.functional.rms_norm(x, (16,), nn.functional.softplus(torch.ones(16)), 1e-6)
    )
    with pytest.raises(SwapError, match="0: its class was changed to ParametrizedRMSNorm"):
        restore_model(model)
    assert swap_report(model).counts == COUNTS
    parametrize.remove_parametrizations(model[0], "weight", leave_parametrized=False)
    assert type(restore_model(model)[0]) is nn.RMSNorm


def test_a_forward_that_was_replaced_after_the_swap(x):
    model = nn.Sequential(nn.SiLU())
    swap_modules(model)
    own = model[0].forward
    model[0].forward = lambda x: own(x) + 1
    with pytest.raises(SwapError, match="0: its forward was replaced on the instance"):
        restore_model(model)
    # as accelerate does when it removes its hooks
    model[0].forward = own
    assert swap_report(restore_model(model)).counts == {}
    assert type(model[0]) is nn.SiLU
    assert "forward" not in vars(model[0])


def test_the_own_forward_on_the_instance(x, calls):
    model = nn.SiLU()
    model.forward = model.forward
    swap_modules(model, strict=True)
    assert calls(model, x) == ["silu"]


def test_modules_that_differ_in_configuration_are_told_apart():
    class Switched(nn.Module):
        def __init__(self, other):
            super().__init__()
            self.other = other

        def forward(self, x):
            return functional.silu(x) * (1.001 if self.other else 1)

    model = nn.Sequential(*(Switched(other) for other in (0, 1, False, True, 0)))
    assert [each.swapped for each in swap_modules(model).entries] == [
        True,
        False,
        True,
        False,
        True,
    ]


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
@pytest.mark.parametrize("early", [True, False], ids=["swapped first", "sharded first"])
def test_sharded_modules(early, tmp_path, x):
    """FSDP2 makes classes of its own of those it wraps, on top of ours or below them."""
    from torch.distributed.fsdp import fully_shard

    model, reference = make_model(), make_model()
    if early:
        swap_modules(model, strict=True)
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        for module in (model[1], model):
            fully_shard(module, mesh=mesh)
        if not early:
            swap_modules(model, strict=True)
        assert swap_report(model).counts == COUNTS
        found, wanted = model(x), reference(x)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        found.sum().backward()
        wanted.sum().backward()
        grads = [each.grad.full_tensor() for each in model.parameters()]
    finally:
        torch.distributed.destroy_process_group()
    for grad, each in zip(grads, reference.parameters(), strict=True):
        torch.testing.assert_close(grad, each.grad, rtol=1e-4, atol=1e-4)


PUBLIC = [modules, *(getattr(modules, name) for name in modules.__all__)]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__name__)
def test_examples_run(thing):
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(recurse=False).find(thing, thing.__name__):
        assert runner.run(test).failed == 0


def test_everything_public_is_a_name_of_the_package():
    for name in set(modules.__all__) - {"prepare_model"}:
        assert getattr(tensor_ops_torch, name) is getattr(modules, name)
        assert name in tensor_ops_torch.__all__
        assert getattr(modules, name).__doc__
