"""Tensors of PyTorch on the CPU, through DLPack's C exchange API."""

import re

import numpy as np
import pytest
from cpp_cases import DTYPES, OPS, arguments, as_tuple

import tensor_ops_cpp
from tensor_ops_cpp import add_rms_norm, layer_norm, rms_norm, silu

torch = pytest.importorskip("torch")
if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    pytest.skip("this PyTorch has no exchange API", allow_module_level=True)

TYPES = {name: getattr(torch, name) for name in DTYPES}


def tensors(op, dtype, rng):
    """Return random tensors for an op, the first of shape (4, 6)."""
    arrays = arguments(op, (4, 6), np.float32, rng)
    return [torch.from_numpy(each).to(dtype) for each in arrays]


def as_numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(DTYPES["bfloat16"])
    return tensor.contiguous().numpy()


def test_the_contract_says_so():
    assert tensor_ops_cpp.CAPABILITIES["exchanges_arrays"] is True


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", OPS)
class TestEveryOp:
    def test_results_are_tensors_with_the_bits_that_arrays_get(self, op, dtype, rng):
        given = tensors(op, TYPES[dtype], rng)
        expected = as_tuple(OPS[op](*map(as_numpy, given)))
        for found, right in zip(as_tuple(OPS[op](*given)), expected, strict=True):
            assert type(found) is torch.Tensor
            assert (found.dtype, found.shape) == (TYPES[dtype], right.shape)
            assert found.is_contiguous()
            assert as_numpy(found).tobytes() == right.tobytes()

    def test_out_is_written_and_returned(self, op, dtype, rng):
        given = tensors(op, TYPES[dtype], rng)
        expected = as_tuple(OPS[op](*given))
        out = tuple(torch.full_like(each, 7) for each in expected)
        found = as_tuple(OPS[op](*given, out=out if len(out) > 1 else out[0]))
        for one, other, right in zip(found, out, expected, strict=True):
            assert one is other
            assert torch.equal(one, right)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, 1::2],
        lambda x: x[:1].expand(5, 6),
        lambda x: x[1:, 2:],
        lambda x: x.reshape(2, 2, 6).permute(2, 0, 1),
        lambda x: x[1, 1],
        lambda x: x[:0],
        lambda x: x[:, :0],
    ],
)
@pytest.mark.parametrize("dtype", TYPES)
def test_views(view, dtype):
    x = view(torch.linspace(-4, 4, 24).reshape(4, 6).to(TYPES[dtype]))
    found = silu(x)
    assert found.shape == x.shape
    assert as_numpy(found).tobytes() == silu(as_numpy(x)).tobytes()
    out = torch.zeros_like(x.contiguous())
    assert silu(x, out=out) is out
    assert torch.equal(out, found)


def test_in_place():
    x = torch.linspace(-4, 4, 24)
    expected = silu(x)
    assert silu(x, out=x) is x
    assert torch.equal(x, expected)


def test_results_keep_their_memory():
    x = torch.randn(64, 1024)
    first, *others = [silu(x) for _ in range(20)]
    assert all(torch.equal(each, first) for each in others)
    assert len({each.data_ptr() for each in [first, *others]}) == 20


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (1,), (3, 1, 5), (1, 16384), (1, 16385)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_small_and_large(shape, dtype):
    x = torch.randn(shape).to(dtype)
    y = silu(x)
    assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
    assert y.stride() == torch.empty(shape).stride()
    assert y.data_ptr() % 64 == 0
    torch.testing.assert_close(y, torch.nn.functional.silu(x))


@pytest.mark.parametrize("length", [3, 100_000])
def test_a_result_is_as_good_as_any_tensor(length):
    y = silu(torch.ones(2, length))
    y += 1
    assert torch.equal(y.clone(), y)
    assert y.share_memory_().is_shared()
    assert not y.requires_grad


class TestGradients:
    @pytest.mark.parametrize("place", [0, 1])
    def test_what_would_lose_its_gradient_is_refused(self, place, rng):
        given = tensors("rms_norm", torch.float32, rng)
        given[place].requires_grad_()
        name = ("x", "weight")[place]
        with pytest.raises(ValueError, match=rf"rms_norm: {name} requires grad.*{name}\.detach"):
            rms_norm(*given)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_nothing_is_lost_where_none_is_recorded(self, mode, rng):
        x, weight = tensors("rms_norm", torch.float32, rng)
        with mode():
            found = rms_norm(x, torch.nn.Parameter(weight))
        assert not found.requires_grad
        assert torch.equal(found, rms_norm(x, weight))

    def test_an_out_that_requires_grad(self):
        with pytest.raises(ValueError, match="silu: out requires grad"):
            silu(torch.ones(3), out=torch.ones(3, requires_grad=True))

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_parameters_of_two_dtypes(self, mode):
        x = torch.randn(4, 6).half()
        weight, bias = (torch.nn.Parameter(torch.randn(6)) for _ in range(2))
        expected = layer_norm(x.numpy(), weight.detach().numpy(), bias.detach().numpy())
        with mode():
            assert as_numpy(layer_norm(x, weight, bias)).tobytes() == expected.tobytes()

    def test_tensors_made_for_inference(self):
        with torch.inference_mode():
            x, weight = torch.randn(4, 6), torch.nn.Parameter(torch.randn(6))
            found = rms_norm(x, weight)
        assert torch.equal(rms_norm(x, weight.detach()), found)


class TestMixedDTypes:
    """Float32 beside half tensors, as between arrays."""

    @pytest.mark.parametrize("half", ["float16", "bfloat16"])
    @pytest.mark.parametrize("wide", [("weight",), ("residual",), ("residual", "weight")])
    def test_bits_and_dtypes(self, half, wide, rng):
        names = ("x", "residual", "weight")
        values = {
            name: tensor.to(torch.float32 if name in wide else TYPES[half])
            for name, tensor in zip(names, tensors("add_rms_norm", torch.float32, rng), strict=True)
        }
        found = add_rms_norm(**values)
        expected = add_rms_norm(**{name: as_numpy(value) for name, value in values.items()})
        assert [each.dtype for each in found] == [TYPES[half], values["residual"].dtype]
        for one, right in zip(found, expected, strict=True):
            assert as_numpy(one).tobytes() == right.tobytes()
        out = values["x"], values["residual"]
        assert all(a is b for a, b in zip(add_rms_norm(**values, out=out), out, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(out, found, strict=True))

    def test_errors(self):
        x, weight = torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(3)
        message = "weight must have x's dtype bfloat16, or float32, got float16; convert it first"
        with pytest.raises(TypeError, match=message):
            rms_norm(x, weight.half())
        message = (
            r"out\[1\] must have residual's dtype float32, got bfloat16; give an array of dtype"
        )
        with pytest.raises(TypeError, match=message):
            add_rms_norm(x, x.float(), weight, out=(x.clone(), x.clone()))

    def test_advice_for_an_output_makes_no_copy(self):
        for out in (torch.zeros(3, dtype=torch.int64), torch._neg_view(torch.ones(3))):
            with pytest.raises((TypeError, ValueError)) as caught:
                silu(torch.ones(3), out=out)
            assert "convert" not in str(caught.value)
            assert "resolve" not in str(caught.value)


class TestRefused:
    def test_signs_that_are_not_in_memory(self):
        x = torch._neg_view(torch.ones(3))
        with pytest.raises(ValueError, match=r"negates lazily; pass x\.resolve_neg\(\)"):
            silu(x)

    @pytest.mark.parametrize("dtype", ["int64", "bool", "complex64", "float8_e4m3fn"])
    def test_other_dtypes(self, dtype):
        with pytest.raises(TypeError, match=rf"silu: x has dtype torch\.{dtype}; the supported"):
            silu(torch.zeros(3, dtype=getattr(torch, dtype)))

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    def test_two_dtypes(self, dtype):
        message = f"weight must have x's dtype float32, got {dtype}"
        with pytest.raises(TypeError, match=message):
            rms_norm(torch.ones(2, 3), torch.ones(3, dtype=getattr(torch, dtype)))

    def test_tensors_and_arrays_in_one_call(self):
        tensor, array = torch.ones(3), np.ones(3, np.float32)
        for one, other, said in [
            (tensor, array, "a Tensor, got a numpy.ndarray; give all"),
            (array, tensor, "a numpy.ndarray, got a Tensor; give all"),
        ]:
            for name, call in [
                ("weight", lambda one=one, other=other: rms_norm(one[None], other)),
                ("out", lambda one=one, other=other: silu(one, out=other)),
            ]:
                message = f"{name} must be an array like x, which is {said}"
                with pytest.raises(TypeError, match=re.escape(message)):
                    call()

    def test_shapes(self):
        with pytest.raises(ValueError, match=r"weight must have shape \(3,\).*got \(4,\)"):
            rms_norm(torch.ones(2, 3), torch.ones(4))
        with pytest.raises(ValueError, match=r"out must have x's shape \(3,\), got \(4,\)"):
            silu(torch.ones(3), out=torch.ones(4))

    def test_overlap(self):
        memory = torch.zeros(30)
        with pytest.raises(ValueError, match="silu: out overlaps x"):
            silu(memory[:24], out=memory[6:])
        with pytest.raises(ValueError, match="overlaps itself"):
            silu(torch.ones(4, 6), out=torch.zeros(1, 6).expand(4, 6))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.eye(3).to_sparse(),
            lambda: torch.empty(3, device="meta"),
            lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
        ],
    )
    def test_tensors_without_memory_like_an_array(self, make):
        with pytest.raises(TypeError, match="silu: x cannot be seen as an array") as caught:
            silu(make())
        assert "\n" not in str(caught.value)

    @pytest.mark.filterwarnings("ignore:Accessing the data pointer")
    def test_fake_tensors(self):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode(), pytest.raises(TypeError, match="silu: x is a FakeTensor"):
            silu(torch.zeros(3))

    def test_under_vmap(self):
        with pytest.raises(TypeError, match="silu: x cannot be seen as an array"):
            torch.func.vmap(silu)(torch.zeros(3, 3))

    def test_the_second_out_of_two(self):
        x, weight = torch.ones(2, 3), torch.ones(3)
        out = (torch.empty(2, 3), torch.empty(2, 4))
        with pytest.raises(ValueError, match=r"out\[1\] must have residual's shape"):
            add_rms_norm(x, x, weight, out=out)


def test_no_memory_is_a_memory_error_or_pytorchs():
    x = torch.zeros(1).expand(2**46)
    message = r"silu: no result could be allocated: [^\n]*$"
    with pytest.raises((MemoryError, RuntimeError), match=message) as caught:
        silu(x)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="silu: x cannot be seen as an array: array is too big"):
        silu(torch.zeros(1).expand(2**62))


def test_nothing_leaks():
    import gc

    x = torch.randn(256, 1024)
    for _ in range(3):
        silu(x)
    gc.collect()

    def resident():
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    before = resident()
    for _ in range(400):
        silu(x)
        with pytest.raises(ValueError, match="shape"):
            silu(x, out=x[:1])
    assert resident() - before < 64 * 2**20  # a mebibyte for each would be 400


def test_autograd_hears_of_what_was_written():
    x, weight = torch.randn(5), torch.randn(5, requires_grad=True)
    loss = (x * weight).sum()
    silu(x, out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        inferred = torch.ones(3)
        assert silu(inferred, out=inferred) is inferred


# PyTorch's own, when it first meets a tangent.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_tangent_is_not_lost():
    x = torch.randn(3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(3))
        with pytest.raises(ValueError, match="silu: x has a tangent"):
            silu(dual)
        assert torch.equal(silu(x.clone()), silu(x))


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_a_tensor_raises_is_raised(error):
    class Raising(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise error

    weight = torch.ones(3).as_subclass(Raising)
    with pytest.raises(error):
        rms_norm(torch.ones(2, 3), weight)


def test_memory_is_looked_at_when_no_more_python_runs():
    x = torch.ones(4096)

    class Freeing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            x.untyped_storage().resize_(0)
            return super().__torch_function__(func, types, args, kwargs or {})

    with pytest.raises(TypeError, match="rms_norm: x is a Tensor without memory"):
        rms_norm(x, torch.ones(4096).as_subclass(Freeing))
