"""Float32 weights, residuals and angles beside half tensors, in all that PyTorch asks for."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tensor_ops
import tensor_ops_torch
from tensor_ops.ops import OPS
from tensor_ops_torch.operators import definition
from tensor_ops_torch.operators.tensors import as_numpy
from tensor_ops_torch.ops import FORMULAS, OPERATORS

HALVES = [torch.float16, torch.bfloat16]
MIXED = [(op, wide) for op in OPS.values() for wide in op.mixtures]
# Everything of torch.compile but the generation of code.
COMPILER = "aot_eager"


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator)


def tensors_of(op):
    """Return float32 tensors for each array of an op, by name."""
    shapes = {"rows": (3, 5, 8), "row_vector": (8,), "half_rows": (5, 4)}
    return {name: draw(*shapes[kind.role]) for name, kind in op.kinds.items() if kind.is_array}


def in_dtypes(tensors, wide, half):
    return {name: each if name in wide else each.to(half) for name, each in tensors.items()}


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def gradients_of(function, arguments):
    """Return the gradients of a sum of squares of the results."""
    leaves = [each.detach().requires_grad_() for each in arguments]
    results = as_tuple(function(*leaves))
    loss = sum((each * (index + 1)).double().square().sum() for index, each in enumerate(results))
    return torch.autograd.grad(loss, leaves)


@pytest.fixture(params=HALVES, ids=str)
def half(request):
    return request.param


@pytest.fixture(params=MIXED, ids=lambda pair: f"{pair[0].name}-{'-'.join(pair[1])}")
def case(request):
    return request.param


@pytest.fixture
def op(case):
    return case[0]


@pytest.fixture
def given(case, half):
    """The tensors of an op by name, of which some are float32."""
    return in_dtypes(tensors_of(case[0]), case[1], half)


@pytest.mark.parametrize("backend", ["cpp", "python", "torch"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_values_are_those_of_tensor_ops(op, given, backend, mode):
    """With and without a way past the dispatcher."""
    arrays = [as_numpy(each) for each in given.values()]
    with tensor_ops.use_backend(backend), mode():
        expected = as_tuple(op.public(*arrays))
        found = as_tuple(getattr(tensor_ops_torch, op.name)(*given.values()))
    for one, other, like in zip(found, expected, op.results_like, strict=True):
        assert one.dtype == given[like].dtype
        np.testing.assert_array_equal(as_numpy(one), other)


def test_composed_is_the_op(op, given):
    """The functions that run on devices that no backend has."""
    found = as_tuple(FORMULAS[op.name].composed(*given.values()))
    exact = as_tuple(OPERATORS[op.name](*(each.double() for each in given.values())))
    for one, other, like in zip(found, exact, op.results_like, strict=True):
        assert one.dtype == given[like].dtype
        bound = 2 * torch.finfo(one.dtype).eps
        torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)


def test_composed_gives_the_same_bits_in_one_dtype(op, case, half):
    composed = FORMULAS[op.name].composed
    same = in_dtypes(tensors_of(op), (), half)
    mixed = {name: each.float() if name in case[1] else each for name, each in same.items()}
    pairs = zip(*(as_tuple(composed(*each.values())) for each in (same, mixed)), strict=True)
    assert all(torch.equal(one, other.to(one.dtype)) for one, other in pairs)


@pytest.mark.parametrize("mode", [torch.no_grad, FakeTensorMode])
def test_tensors_without_memory(op, given, mode):
    with mode():
        named = {
            name: torch.empty(each.shape, dtype=each.dtype, device="meta")
            for name, each in given.items()
        }
        found = as_tuple(OPERATORS[op.name](*named.values()))
    for each, like in zip(found, op.results_like, strict=True):
        assert (each.shape, each.dtype) == (given[like].shape, given[like].dtype)


def test_what_pytorch_checks_of_an_operator(op, given):
    arguments = [each.requires_grad_() for each in given.values()]
    outcome = torch.library.opcheck(OPERATORS[op.name], arguments)
    assert set(outcome.values()) == {"SUCCESS"}


def test_gradients(op, given, half):
    """Each has the dtype of its argument, and the value of the formula's in float64."""
    found = gradients_of(OPERATORS[op.name], given.values())
    composed = FORMULAS[op.name].composed
    expected = gradients_of(composed, [each.double() for each in given.values()])
    bound = 8 * torch.finfo(half).eps
    for one, other, argument in zip(found, expected, given.values(), strict=True):
        assert one.dtype == argument.dtype
        error = (one.double() - other).abs().max() / other.abs().max()
        assert error <= bound


def test_compile_without_graph_breaks(op, given):
    torch._dynamo.reset()
    compiled = torch.compile(OPERATORS[op.name], fullgraph=True, backend=COMPILER)
    pairs = zip(
        gradients_of(compiled, given.values()),
        gradients_of(OPERATORS[op.name], given.values()),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other)
    for one, other in zip(
        as_tuple(compiled(*given.values())),
        as_tuple(OPERATORS[op.name](*given.values())),
        strict=True,
    ):
        assert torch.equal(one, other)


def test_vmap(op, given):
    batches = [torch.stack((each, each / 2)) for each in given.values()]
    for dims in ((0,) * len(batches), (0, *(None,) * (len(batches) - 1))):
        values = [
            batch if dim == 0 else each
            for batch, each, dim in zip(batches, given.values(), dims, strict=True)
        ]
        mapped = as_tuple(torch.vmap(OPERATORS[op.name], dims)(*values))
        for index in range(2):
            single = [
                each if dim is None else each[index] for each, dim in zip(values, dims, strict=True)
            ]
            for one, other in zip(mapped, as_tuple(OPERATORS[op.name](*single)), strict=True):
                assert one.dtype == other.dtype
                assert torch.equal(one[index], other)


def test_autocast_brings_arguments_to_float32(op, given):
    """As autocast does with PyTorch's own norms, and type promotion with products."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = as_tuple(OPERATORS[op.name](*given.values()))
    expected = as_tuple(OPERATORS[op.name](*(each.float() for each in given.values())))
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_a_device_of_no_backend(op, given, monkeypatch):
    monkeypatch.setattr(definition, "device_function", lambda *_: None)
    composed = FORMULAS[op.name].composed
    found = as_tuple(definition.device_kernel(op, composed)(*given.values()))
    for each, like in zip(found, op.results_like, strict=True):
        assert each.dtype == given[like].dtype


@pytest.mark.parametrize("backend", ["cpp", "python"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_dtypes_that_do_not_go_together(half, device, backend):
    """The names of the op, the argument, its dtype and what is expected are in the message."""
    other = next(each for each in HALVES if each is not half)
    x, vector = torch.ones(2, 8, dtype=half, device=device), torch.ones(8, device=device)
    wide_x, name = x.float(), str(half).removeprefix("torch.")
    calls = [
        ("rms_norm", (x, vector.double()), ("weight", "float64", name, "float32")),
        ("rms_norm", (x, vector.to(other)), ("weight", name, "float32")),
        ("rms_norm", (wide_x, vector.to(half)), ("weight", name, "float32")),
        ("layer_norm", (x, vector, vector.to(half)), ("bias", name, "float32", "weight")),
        ("layer_norm", (x, vector.to(half), vector), ("bias", name, "float32", "weight")),
        ("add_rms_norm", (x, x.double(), vector), ("residual", "float64", name, "float32")),
        ("rope", (x, vector[:4], vector[:4].to(half)), ("sin", name, "float32", "cos")),
        ("silu_mul", (x, wide_x), ("up", "float32", name)),
    ]
    for op, arguments, says in calls:
        with tensor_ops.use_backend(backend), pytest.raises(TypeError) as caught:
            OPERATORS[op](*arguments)
        for text in (f"{op}: ", *says):
            assert text in str(caught.value), str(caught.value)
