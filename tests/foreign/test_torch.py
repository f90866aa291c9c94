"""PyTorch's CPU tensors in and out: the same kind, the same values, the same memory."""

import numpy as np
import pytest

import tensor_ops
from tensor_ops import backends, explain
from tensor_ops.op.arguments import DTYPES
from tensor_ops.ops import OPS

torch = pytest.importorskip("torch")
forward_ad = pytest.importorskip("torch.autograd.forward_ad")

TORCH = {name: getattr(torch, name) for name in DTYPES}


def as_numpy(tensor):
    """Return a tensor's values as NumPy array by another way than DLPack."""
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(DTYPES["bfloat16"])
    return tensor.contiguous().numpy()


def same(result, expected):
    """Return whether a tensor has the dtype, shape and bits of an array."""
    array = as_numpy(result)
    return (
        isinstance(result, torch.Tensor)
        and array.dtype == expected.dtype
        and array.shape == expected.shape
        and array.tobytes() == expected.tobytes()
    )


def tensors_of(op, shape, dtype):
    """Return random tensors for the array arguments that `op` must have, by name."""
    n = shape[-1]
    shapes = {"row_vector": (n,), "half_rows": (n // 2,)}
    generator = torch.Generator().manual_seed(len(op.name))
    return {
        name: torch.randn(shapes.get(kind.role, shape), generator=generator).to(TORCH[dtype])
        for name, kind in op.kinds.items()
        if kind.is_array
    }


@pytest.fixture(params=TORCH)
def dtype(request):
    return request.param


@pytest.fixture(params=sorted(OPS))
def op(request):
    return OPS[request.param]


@pytest.fixture
def x(dtype):
    return torch.linspace(-4, 4, 24).reshape(4, 6).to(TORCH[dtype])


def outputs(op, result):
    """Return the results of an op as a tuple, whether or not it has several."""
    return result if op.outputs > 1 else (result,)


class TestEveryOp:
    def test_kind_and_values(self, op, dtype):
        tensors = tensors_of(op, (3, 8), dtype)
        results = outputs(op, op.public(**tensors))
        expected = op.numpy(**{name: as_numpy(tensor) for name, tensor in tensors.items()})
        for result, right in zip(results, outputs(op, expected), strict=True):
            assert same(result, right)

    def test_no_argument_and_no_result_is_copied(self, op, dtype, seen):
        tensors = tensors_of(op, (3, 8), dtype)
        results = outputs(op, op.public(**tensors))
        for name, tensor in tensors.items():
            assert seen[op.name, name] == [tensor.data_ptr()], name
        assert seen[op.name, "out"] == [result.data_ptr() for result in results]

    def test_out_is_filled_and_returned(self, op, dtype, seen):
        tensors = tensors_of(op, (3, 8), dtype)
        expected = outputs(op, op.public(**tensors))
        given = tuple(torch.full_like(each, 7) for each in expected)
        results = outputs(op, op.public(**tensors, out=given if op.outputs > 1 else given[0]))
        for result, out, right in zip(results, given, expected, strict=True):
            assert result is out
            assert torch.equal(out, right)
        assert seen[op.name, "out"] == [out.data_ptr() for out in given]

    def test_results_keep_their_memory(self, op, dtype):
        tensors = tensors_of(op, (3, 8), dtype)
        first, *others = [outputs(op, op.public(**tensors)) for _ in range(50)]
        for results in others:
            assert all(map(torch.equal, results, first))

    @pytest.mark.parametrize("place", ["first", "last", "out"])
    def test_requires_grad_is_an_error_that_names_the_argument(self, op, place):
        tensors = tensors_of(op, (3, 8), "float32")
        if place == "out":
            given = tuple(torch.empty(3, 8, requires_grad=True) for _ in range(op.outputs))
            named, options = "out", {"out": given if op.outputs > 1 else given[0]}
        else:
            named, options = list(tensors)[0 if place == "first" else -1], {}
            tensors[named].requires_grad_()
        with pytest.raises(ValueError, match=rf"{op.name}: {named}.* requires grad.*detach\(\)"):
            op.public(**tensors, **options)


class TestLayouts:
    @pytest.mark.parametrize(
        "view",
        [
            lambda x: x.T,
            lambda x: x[::2, 1::2],
            lambda x: x[:, 2],
            lambda x: x[:1].expand(5, 6),
            lambda x: x[2:, 3:],
            lambda x: x.reshape(2, 2, 6).permute(2, 0, 1),
            lambda x: x[1, 1],  # no axes
            lambda x: x[:0],
            lambda x: x[:, :0],
            lambda x: x.reshape(1, 24, 1),
        ],
    )
    def test_views(self, x, view, seen):
        tensor = view(x)
        result = tensor_ops.silu(tensor)
        if tensor.numel():
            assert seen["silu", "x"] == [tensor.data_ptr()]
        assert same(result, OPS["silu"].numpy(as_numpy(tensor)))

    def test_in_place(self, x):
        expected = tensor_ops.silu(x)
        assert tensor_ops.silu(x, out=x) is x
        assert torch.equal(x, expected)

    def test_into_a_view(self, x):
        whole = torch.zeros(4, 12, dtype=x.dtype)
        out = whole[:, ::2]
        assert tensor_ops.silu(x, out=out) is out
        assert torch.equal(whole[:, ::2], tensor_ops.silu(x))
        assert not whole[:, 1::2].any()

    def test_an_out_that_overlaps_is_an_error(self):
        memory = torch.zeros(30)
        with pytest.raises(ValueError, match="silu: out overlaps x"):
            tensor_ops.silu(memory[:24], out=memory[6:])

    def test_an_expanded_out_is_an_error(self, x):
        with pytest.raises(ValueError, match="overlaps itself"):
            tensor_ops.silu(x, out=torch.zeros(1, 6, dtype=x.dtype).expand(4, 6))


class TestKinds:
    def test_the_result_of_a_parameter_is_a_tensor(self, x):
        result = tensor_ops.silu(torch.nn.Parameter(x, requires_grad=False))
        assert type(result) is torch.Tensor

    def test_a_users_subclass(self, x):
        class Tagged(torch.Tensor):
            pass

        result = tensor_ops.silu(x.as_subclass(Tagged))
        assert torch.equal(torch.as_tensor(result), tensor_ops.silu(x))

    @pytest.mark.parametrize("backend", ["python", *backends.INSTALLED])
    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_where_no_gradients_are_recorded(self, mode, x, backend):
        if not tensor_ops.is_backend_available(backend):
            pytest.skip(f"{backend} is not available here")
        parameter, out = torch.nn.Parameter(x), torch.zeros_like(x, requires_grad=True)
        with tensor_ops.use_backend(backend):
            expected = tensor_ops.silu(x)
            with mode():
                result = tensor_ops.silu(parameter)
                assert torch.equal(result, expected)
                assert type(result) is torch.Tensor
                assert not result.requires_grad
                assert tensor_ops.silu(parameter, out=out) is out
                assert torch.equal(out, expected)
                weights = torch.nn.Parameter(x[0])
                assert torch.equal(
                    tensor_ops.rms_norm(parameter, weights), tensor_ops.rms_norm(x, x[0])
                )
                assert explain("silu", parameter).backend == backend
            with pytest.raises(ValueError, match="silu: x requires grad"):
                tensor_ops.silu(parameter)

    def test_what_requires_grad_in_another_library_is_refused(self, x):
        class Recording:
            requires_grad = True
            __dlpack__, __dlpack_device__ = x.__dlpack__, x.__dlpack_device__

        with torch.no_grad(), pytest.raises(ValueError, match="silu: x requires grad"):
            tensor_ops.silu(Recording(), out=torch.empty_like(x))

    def test_inference_tensors(self, x):
        with torch.inference_mode():
            inferred = x.clone()
        assert inferred.is_inference()
        expected = tensor_ops.silu(x)
        assert torch.equal(tensor_ops.silu(inferred), expected)
        assert tensor_ops.silu(inferred, out=inferred) is inferred
        assert torch.equal(inferred, expected)

    def test_a_detached_tensor(self):
        x = torch.ones(3, requires_grad=True)
        assert not tensor_ops.silu(x.detach()).requires_grad

    def test_numpy_arrays_beside_a_first_tensor(self, x):
        weight = np.ones(6, as_numpy(x).dtype)
        result = tensor_ops.rms_norm(x, weight)
        assert torch.equal(result, tensor_ops.rms_norm(x, torch.ones(6, dtype=x.dtype)))
        out = np.empty((4, 6), weight.dtype)
        assert tensor_ops.rms_norm(x, weight, out=out) is out
        assert same(result, out)

    @pytest.mark.parametrize("backend", ["python", *backends.INSTALLED])
    def test_tensors_beside_a_first_array(self, x, backend):
        if not tensor_ops.is_backend_available(backend):
            pytest.skip(f"{backend} is not available here")
        array, weight = as_numpy(x), torch.linspace(1, 2, 6).to(x.dtype)
        with tensor_ops.use_backend(backend):
            expected = tensor_ops.rms_norm(array, as_numpy(weight))
            for result in (
                tensor_ops.rms_norm(array, weight),
                tensor_ops.rms_norm(x=array, weight=weight),
            ):
                assert isinstance(result, np.ndarray)
                assert result.tobytes() == expected.tobytes()
            out = torch.empty_like(x)
            assert tensor_ops.rms_norm(array, as_numpy(weight), out=out) is out
            assert same(out, expected)
            with pytest.raises(ValueError, match=r"weight requires grad.*detach\(\)"):
                tensor_ops.rms_norm(array, torch.ones(6, dtype=x.dtype, requires_grad=True))
            with pytest.raises(ValueError, match="weight is a view that negates lazily"):
                tensor_ops.rms_norm(array, torch._neg_view(weight))

    def test_two_results_beside_a_first_array(self, x):
        array = as_numpy(x)
        out = np.empty_like(array), torch.empty_like(x)
        results = tensor_ops.add_rms_norm(array, x, array[0], out=out)
        assert all(a is b for a, b in zip(results, out, strict=True))
        y, h = tensor_ops.add_rms_norm(array, array, array[0])
        np.testing.assert_array_equal(out[0], y)
        assert same(out[1], h)

    @pytest.mark.parametrize("weight", [[1.0] * 6, 1.0, None])
    def test_what_is_no_array_is_an_error(self, weight):
        with pytest.raises(TypeError, match="rms_norm: weight must be an array, got builtins"):
            tensor_ops.rms_norm(torch.ones(4, 6), weight)

    def test_arguments_by_keyword(self, x):
        assert torch.equal(tensor_ops.silu(x=x), tensor_ops.silu(x))


class TestMixedDtypes:
    """Float32 weights, residuals and angles beside half tensors."""

    @pytest.fixture(params=["float16", "bfloat16"])
    def half(self, request):
        return TORCH[request.param]

    @pytest.mark.parametrize(
        ("op", "wide"),
        [(op, wide) for op in OPS.values() for wide in op.mixtures],
        ids=str,
    )
    def test_values_and_dtypes(self, op, wide, half):
        tensors = tensors_of(op, (3, 8), "float32")
        given = {name: value if name in wide else value.to(half) for name, value in tensors.items()}
        results = outputs(op, op.public(**given))
        arrays = {name: as_numpy(value) for name, value in given.items()}
        for result, right, like in zip(
            results, outputs(op, op.numpy(**arrays)), op.results_like, strict=True
        ):
            assert result.dtype == given[like].dtype
            assert same(result, right)


# PyTorch's own, when it first meets a tangent.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
class TestTangents:
    """PyTorch's forward-mode derivatives, which would be lost."""

    @pytest.mark.parametrize("backend", ["python", *backends.INSTALLED])
    def test_a_tangent_is_an_error(self, backend):
        if not tensor_ops.is_backend_available(backend):
            pytest.skip(f"{backend} is not available here")
        x, weight = torch.ones(2, 3), torch.ones(3)
        with tensor_ops.use_backend(backend), forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            with pytest.raises(ValueError, match=r"x has a tangent.*x\.detach\(\).*torch\.silu"):
                tensor_ops.silu(dual)
            with pytest.raises(ValueError, match="silu: x has a tangent"):
                explain("silu", dual)
            for first in (x, x.numpy()):
                with pytest.raises(ValueError, match="rms_norm: weight has a tangent"):
                    tensor_ops.rms_norm(first, forward_ad.make_dual(weight, weight))
            assert torch.equal(tensor_ops.silu(dual.detach()), tensor_ops.silu(x))

    def test_jvp_is_an_error(self):
        x = torch.ones(3)
        with pytest.raises(ValueError, match="silu: x has a tangent"):
            torch.func.jvp(tensor_ops.silu, (x,), (x,))


class TestRefused:
    @pytest.mark.parametrize(
        "dtype", ["int64", "int32", "uint8", "bool", "complex64", "float8_e4m3fn"]
    )
    def test_other_dtypes(self, dtype):
        x = torch.zeros(3, dtype=getattr(torch, dtype))
        with pytest.raises(TypeError, match=rf"silu: x .*dtype (torch\.)?{dtype}"):
            tensor_ops.silu(x)

    def test_two_dtypes(self):
        with pytest.raises(TypeError, match="weight has dtype float64, expected float32 like x"):
            tensor_ops.rms_norm(torch.ones(2, 3), torch.ones(3, dtype=torch.float64))
        with pytest.raises(TypeError, match="out has dtype bfloat16, expected float32"):
            tensor_ops.silu(torch.ones(3), out=torch.ones(3, dtype=torch.bfloat16))

    def test_the_meta_device(self):
        with pytest.raises(ValueError, match=r"silu: x is on no device of DLPack: .*meta"):
            tensor_ops.silu(torch.empty(3, device="meta"))

    def test_a_second_tensor_on_the_meta_device(self):
        with pytest.raises(ValueError, match="rms_norm: weight is on no device of DLPack"):
            tensor_ops.rms_norm(torch.ones(2, 3), torch.ones(3, device="meta"))

    def test_sparse_tensors(self):
        with pytest.raises(TypeError, match=r"silu: x .*layout"):
            tensor_ops.silu(torch.eye(3).to_sparse())

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_lazily_negated_views(self, dtype):
        """Their memory holds the other sign, and DLPack does not say so."""
        view = torch._neg_view(torch.ones(3, dtype=dtype))
        with pytest.raises(ValueError, match=r"negates lazily; pass x\.resolve_neg\(\)"):
            tensor_ops.silu(view)
        assert (tensor_ops.silu(view.resolve_neg()) < 0).all()
        out = torch._neg_view(torch.ones(3, dtype=dtype))
        with pytest.raises(ValueError, match="out is a view that negates lazily") as caught:
            tensor_ops.silu(torch.ones(3, dtype=dtype), out=out)
        assert "resolve_neg" not in str(caught.value)  # which is a copy

    def test_wrong_shapes(self):
        with pytest.raises(ValueError, match=r"weight has shape \(4,\), expected \(3,\)"):
            tensor_ops.rms_norm(torch.ones(2, 3), torch.ones(4))


class TestExplain:
    def test_a_tensor(self, x, dtype):
        with tensor_ops.use_backend("auto"):
            explanation = explain("silu", x)
        assert (explanation.dtype, explanation.device) == (dtype, "cpu")
        assert explanation.backend is not None

    @pytest.mark.parametrize(
        "options", [{"dtype": torch.int64}, {"requires_grad": True}, {"device": "meta"}]
    )
    def test_what_the_op_refuses_is_refused_with_the_same_error(self, options):
        x = torch.zeros(3, **options)
        with pytest.raises((TypeError, ValueError)) as of_the_call:
            tensor_ops.silu(x)
        with pytest.raises(of_the_call.type) as of_explain:
            explain("silu", x)
        assert str(of_explain.value) == str(of_the_call.value)
