"""The provider of vLLM's IR ops where vLLM is missing, or is what a test makes of it.

A stand-in takes the place of ``vllm.ir.ops``, with what `register` uses of it alone.
test_vllm_provider_in_vllm.py runs the provider in vLLM itself.
"""

import doctest
import logging
import sys
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

import tensor_ops
from tensor_ops_torch import vllm_provider
from tensor_ops_torch.vllm_provider import PROVIDER, TESTED_VERSION, register

OPS = ("rms_norm", "fused_add_rms_norm")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# vLLM lets a provider be so far from its own functions.
TOLERANCES = {
    torch.float32: {"rtol": 1.3e-6, "atol": 1e-5},
    torch.float16: {"rtol": 2e-3, "atol": 1e-2},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-3},
}


def rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """Compute what vLLM's function does: in float32, rounded to the dtype of the weight."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide.to(weight.dtype) * weight).to(x.dtype)


def fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute what vLLM's function does: the sum is rounded in what is returned of it alone."""
    total = x.float() + x_residual.float()
    return rms_norm(total, weight, epsilon).to(x.dtype), total.to(x.dtype)


class Op:
    """The part of an IR op that `register` uses: implementations, by their providers."""

    def __init__(self, native):
        self.impls = {"native": SimpleNamespace(impl_fn=native)}

    def register_impl(self, provider, *, supports_args):
        def add(function):
            assert provider not in self.impls
            self.impls[provider] = SimpleNamespace(impl_fn=function, supports_args=supports_args)

        return add


@pytest.fixture
def ops(monkeypatch):
    """A stand-in for the module ``vllm.ir.ops``."""
    packages = {name: ModuleType(name) for name in ("vllm", "vllm.ir", "vllm.ir.ops")}
    for name, module in packages.items():
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    packages["vllm"].__version__ = "999.9"
    found = packages["vllm.ir.ops"]
    found.rms_norm, found.fused_add_rms_norm = Op(rms_norm), Op(fused_add_rms_norm)
    return found


@pytest.fixture
def provided(ops):
    """The implementations that were registered, by the names of the ops."""
    register()
    return {name: getattr(ops, name).impls[PROVIDER] for name in OPS}


@pytest.fixture
def warnings(caplog):
    """A function that returns what has been logged since its last call."""
    caplog.set_level(logging.WARNING)

    def take():
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return take


def arguments(name, dtype=torch.float32, weight_dtype=None, rows=(3, 64), device="cpu"):
    torch.manual_seed(0)
    given = {"x": torch.randn(rows).to(device, dtype)}
    if name == "fused_add_rms_norm":
        given["x_residual"] = torch.randn(rows).to(device, dtype)
    weight = torch.randn(rows[-1]).to(device, weight_dtype or dtype)
    return given | {"weight": weight, "epsilon": 1e-5}


def test_vllm_finds_it():
    (point,) = entry_points(group="vllm.general_plugins", name=PROVIDER)
    assert point.load() is register


def test_the_example(ops):
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for test in finder.find(vllm_provider):
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries


def test_without_vllm_a_warning_says_what_it_needs(monkeypatch, warnings):
    monkeypatch.setitem(sys.modules, "vllm", None)
    register()
    (message,) = warnings()
    assert f"needs vLLM {TESTED_VERSION}" in message
    assert "found no vLLM" in message


def test_with_an_older_vllm_a_warning_names_both_versions(monkeypatch, warnings, ops):
    monkeypatch.delitem(sys.modules, "vllm.ir.ops")
    sys.modules["vllm"].__version__ = "0.9.1"
    register()
    (message,) = warnings()
    assert "No module named 'vllm.ir.ops'" in message
    assert f"needs vLLM {TESTED_VERSION}" in message
    assert "found vLLM 0.9.1" in message


def test_a_second_call_changes_nothing(ops, warnings):
    register()
    first = [dict(getattr(ops, name).impls) for name in OPS]
    register()
    assert [getattr(ops, name).impls for name in OPS] == first
    assert [sorted(impls) for impls in first] == [["native", PROVIDER]] * 2
    assert warnings() == []


def test_another_provider_of_the_name_stays(ops, warnings):
    other = SimpleNamespace(impl_fn=rms_norm)
    ops.rms_norm.impls[PROVIDER] = other
    register()
    (message,) = warnings()
    assert "vllm.ir.ops.rms_norm" in message
    assert f"{__name__} has registered another provider" in message
    assert ops.rms_norm.impls[PROVIDER] is other
    assert PROVIDER in ops.fused_add_rms_norm.impls


def test_an_op_that_is_missing_leaves_the_others(ops, warnings):
    del ops.rms_norm
    register()
    (message,) = warnings()
    assert "vllm.ir.ops.rms_norm" in message
    assert "found vLLM 999.9" in message
    assert PROVIDER in ops.fused_add_rms_norm.impls


@pytest.mark.parametrize("error", [AssertionError, TypeError, ValueError])
def test_an_op_with_another_signature_leaves_the_others(ops, warnings, monkeypatch, error):
    def refuse(provider, *, supports_args):
        raise error("has another schema")

    monkeypatch.setattr(ops.fused_add_rms_norm, "register_impl", refuse)
    register()
    (message,) = warnings()
    assert "vllm.ir.ops.fused_add_rms_norm" in message
    assert "has another schema" in message
    assert PROVIDER in ops.rms_norm.impls


@pytest.mark.parametrize("name", OPS)
def test_its_schema_is_that_of_the_op(ops, provided, name):
    schemas = {
        torch.library.infer_schema(each.impl_fn, mutates_args=[])
        for each in getattr(ops, name).impls.values()
    }
    assert len(schemas) == 1


@pytest.mark.parametrize("rows", [(1, 64), (5, 3, 129), (0, 16), (7,)])
@pytest.mark.parametrize("weight_dtype", [None, torch.float32])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_it_computes_what_vllm_means(ops, provided, name, dtype, weight_dtype, rows):
    given = arguments(name, dtype, weight_dtype, rows)
    before = {key: value.clone() for key, value in given.items() if key != "epsilon"}
    assert provided[name].supports_args(**given)
    with torch.inference_mode():
        found = provided[name].impl_fn(**given)
    expected = getattr(ops, name).impls["native"].impl_fn(**given)
    torch.testing.assert_close(found, expected, **TOLERANCES[dtype])
    if name == "fused_add_rms_norm":
        assert torch.equal(found[1], expected[1])
    assert all(torch.equal(given[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", OPS)
def test_it_takes_parts_of_larger_tensors(ops, provided, name):
    """As the queries in a product of one matrix for queries, keys and values."""
    given = arguments(name)
    for key in given.keys() & {"x", "x_residual"}:
        given[key] = given[key].repeat(1, 3)[:, 64:128].unflatten(-1, (4, 16))
    given["weight"] = given["weight"][:16]
    assert provided[name].supports_args(**given)
    found = provided[name].impl_fn(**given)
    expected = getattr(ops, name).impls["native"].impl_fn(**given)
    torch.testing.assert_close(found, expected, **TOLERANCES[torch.float32])


# Changes of the arguments so that vLLM has to compute them by its next provider.
UNSUPPORTED = {
    "no weight": lambda given: {"weight": None},
    "the variance of a part of the row": lambda given: {"variance_size": 32},
    "a half weight of float32 rows": lambda given: {"weight": given["weight"].half()},
    "a weight that is broadcast": lambda given: {"weight": given["weight"][:1]},
    "a weight of two axes": lambda given: {"weight": given["weight"][None]},
    "a weight on another device": lambda given: {"weight": given["weight"].to("meta")},
    "a negative epsilon": lambda given: {"epsilon": -1e-6},
    "an infinite epsilon": lambda given: {"epsilon": float("inf")},
    "an epsilon that is no number": lambda given: {"epsilon": float("nan")},
}


@pytest.mark.parametrize("change", UNSUPPORTED.values(), ids=UNSUPPORTED)
@pytest.mark.parametrize("name", OPS)
def test_it_leaves_to_others_what_it_does_not_do(provided, name, change):
    given = arguments(name)
    assert provided[name].supports_args(**given)
    assert not provided[name].supports_args(**given | change(given))


@pytest.mark.parametrize("name", OPS)
def test_it_leaves_other_dtypes_to_others(provided, name):
    supports_args = provided[name].supports_args
    assert not supports_args(**arguments(name, torch.float64))
    assert not supports_args(**arguments(name, torch.float16, torch.bfloat16))
    assert not supports_args(**arguments(name, torch.bfloat16, torch.float16))


@pytest.mark.parametrize(
    "change", [Tensor.half, lambda residual: residual[:1], lambda residual: residual.to("meta")]
)
def test_the_residual_must_be_like_x(provided, change):
    given = arguments("fused_add_rms_norm")
    given["x_residual"] = change(given["x_residual"])
    assert not provided["fused_add_rms_norm"].supports_args(**given)


@pytest.mark.parametrize("name", OPS)
def test_it_leaves_devices_without_a_backend_to_others(provided, warnings, name):
    """It warns once of what somebody has asked for and does not get."""
    given = arguments(name, device="meta")
    assert not provided[name].supports_args(**given)
    (message,) = warnings()
    assert "vLLM's next provider computes" in message
    assert "on meta" in message
    assert not provided[name].supports_args(**given)
    assert warnings() == []


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_backend_that_was_asked_for_is_not_passed_over(provided, warnings, device):
    """The call reaches the operator, which raises an error if the backend is unavailable."""
    with tensor_ops.use_backend("cpp"):
        given = arguments("rms_norm", torch.float16, device=device)
        assert provided["rms_norm"].supports_args(**given)
    assert warnings() == []


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_torch_compile_traces_the_choice(provided, device):
    """vLLM has its choice of a provider traced where it does not wrap IR ops as operators."""
    graphs = []

    def compile_graph(module, example):
        graphs.append([str(node.target) for node in module.graph.nodes])
        return module.forward

    def model(x, x_residual, weight):
        given = x, x_residual, weight, 1e-5
        implementation = provided["fused_add_rms_norm"]
        if implementation.supports_args(*given):
            return implementation.impl_fn(*given)
        return fused_add_rms_norm(*given)

    given = arguments("fused_add_rms_norm", torch.bfloat16, device=device)
    del given["epsilon"]
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=compile_graph)
    with torch.no_grad():
        compiled(**given)
    (targets,) = graphs
    assert ("tensor_ops.add_rms_norm.default" in targets) == (device == "cpu")
