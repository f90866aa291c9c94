"""Calls that swapped modules leave to their own forward, and what is built on modules."""

import copy
import doctest
import itertools

import pytest
import torch
from small_models import COUNTS, GemmaNorm, make_model
from torch import nn
from torch.nn.utils import parametrize

import tensor_ops_torch
from tensor_ops_torch import (
    SwapError,
    modules,
    restore_model,
    swap_modules,
    swap_report,
)


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
        assert torch.equal(module(lazy), module(torch.tensor([-1.0])))


def test_sparse_and_nested_tensors():
    module, reference = nn.SiLU(), nn.SiLU()
    swap_modules(module)
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    assert torch.equal(module(nested).values(), reference(nested).values())


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
    model = nn.Sequential(*(nn.SiLU(inplace=each) for each in (False, True, False)))
    assert [each.swapped for each in swap_modules(model).entries] == [True, False, True]


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
