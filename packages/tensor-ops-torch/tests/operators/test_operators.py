"""The operators: what PyTorch asks of one."""

import doctest
import inspect
import re
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import tensor_ops
import tensor_ops_torch
from tensor_ops.backends.contract import Capabilities
from tensor_ops.extension import OPS, Route
from tensor_ops_torch.operators import definition
from tensor_ops_torch.operators.tensors import DTYPE_NAMES, as_numpy
from tensor_ops_torch.ops import FORMULAS, OPERATORS

# Everything of torch.compile but the generation of code.
BACKEND = "aot_eager"


def in_dtype(tensors, dtype):
    return [each.detach().to(dtype) for each in tensors]


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def gradients_of(function, arguments):
    """Return the gradients of a sum of squares of the results."""
    arrays = [each.detach().requires_grad_() for each in arguments]
    results = as_tuple(function(*arrays))
    loss = sum((each * (index + 1)).square().sum() for index, each in enumerate(results))
    return torch.autograd.grad(loss, arrays)


def draw(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


def test_gradients(derived):
    assert gradcheck(derived.operator, derived.arrays())
    assert gradgradcheck(derived.operator, derived.arrays())


def test_gradients_where_arguments_are_left_out():
    x, weight = draw(3, 6), draw(6)
    assert gradcheck(tensor_ops_torch.layer_norm, (x, weight))
    assert gradcheck(tensor_ops_torch.layer_norm, (x, weight, None, 0.5))
    assert gradcheck(tensor_ops_torch.softmax, (x,))


def test_what_pytorch_checks_of_an_operator(derived):
    keywords = derived.operator.keywords
    outcome = torch.library.opcheck(derived.operator.func, derived.arrays(), keywords)
    assert set(outcome.values()) == {"SUCCESS"}


def test_every_operator_is_a_function_of_the_package():
    for name in OPERATORS:
        function, op = getattr(tensor_ops_torch, name), tensor_ops.ops.OPS[name]
        assert list(inspect.signature(function).parameters) == list(op.kinds)
        assert "backend" not in function.__doc__.replace("BackendError", "").partition("Raises")[0]
        broken = r"\b(\w+)\s+\1\b|`out`|results\b|\b(negatives|differs|twos)\b"
        assert not re.search(broken, function.__doc__)
        runner = doctest.DocTestRunner()
        for test in doctest.DocTestFinder().find(function, name):
            runner.run(test)
        assert (runner.tries > 2, runner.failures) == (True, 0)


class TestResults:
    """The same numbers as tensor_ops gives for NumPy arrays, bit for bit."""

    @pytest.mark.parametrize("dtype", DTYPE_NAMES, ids=DTYPE_NAMES.get)
    def test_of_any_dtype(self, call, dtype):
        tensors = in_dtype(call.arrays(), dtype)
        found = call.operator(*tensors)
        with tensor_ops.use_backend("cpp"):
            expected = call.public(*map(as_numpy, tensors))
        for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
            assert one.dtype == dtype
            np.testing.assert_array_equal(as_numpy(one), other)

    def test_of_any_layout(self, call):
        tensors = in_dtype(call.arrays(), torch.float32)
        spread = [torch.stack((each, each), dim=-1)[..., 1] for each in tensors]
        expected = as_tuple(call.operator(*tensors))
        for one, other in zip(as_tuple(call.operator(*spread)), expected, strict=True):
            assert one.is_contiguous()
            assert torch.equal(one, other)

    def test_of_lazily_negated_views(self):
        x = torch.randn(4, dtype=torch.complex64).conj().imag
        assert x.is_neg()
        assert torch.equal(tensor_ops_torch.silu(x), tensor_ops_torch.silu(x.resolve_neg()))

    @pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (1,), (2, 1)])
    def test_of_few_elements(self, shape):
        x = torch.ones(shape)
        assert tensor_ops_torch.silu(x).shape == shape
        assert tensor_ops_torch.rms_norm(x, torch.ones(shape[-1])).shape == shape

    def test_of_parameters_and_modes(self):
        weight = torch.nn.Parameter(torch.ones(4))
        x = torch.randn(2, 4)
        expected = tensor_ops_torch.rms_norm(x, weight.detach())
        assert torch.equal(tensor_ops_torch.rms_norm(x, weight), expected)
        with torch.no_grad():
            assert not tensor_ops_torch.rms_norm(x, weight).requires_grad
        with torch.inference_mode():
            assert torch.equal(tensor_ops_torch.rms_norm(x, weight), expected)

    def test_inputs_stay_as_they_are_and_are_not_copied(self, monkeypatch):
        seen = []
        x = torch.randn(3, 4)
        body = tensor_ops.ops.OPS["silu"].body
        monkeypatch.setattr(
            tensor_ops.ops.OPS["silu"],
            "body",
            lambda **values: (seen.append(values["x"].ctypes.data), body(**values)),
        )
        before = x.clone()
        with tensor_ops.use_backend("python"):
            tensor_ops_torch.silu(x)
        assert seen == [x.data_ptr()]
        assert torch.equal(x, before)


class TestGradients:
    """Against those that PyTorch finds for the formula in its own functions, in float64."""

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_of_training_dtypes(self, derived, dtype):
        rounded = in_dtype(derived.arrays(), dtype)
        found = gradients_of(derived.operator, rounded)
        expected = gradients_of(derived.composed, in_dtype(rounded, torch.float64))
        # Two roundings to the dtype, of the result and on the way to it; sums of a dozen terms.
        bound = 8 * torch.finfo(dtype).eps
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == dtype
            error = (one.double() - other).abs().max() / other.abs().max()
            assert error <= bound

    def test_of_rows_whose_squares_overflow(self):
        x = (torch.randn(3, 64) * 1e19).requires_grad_()
        weight = torch.ones(64, requires_grad=True)
        direction = torch.randn(3, 64)
        (found,) = torch.autograd.grad(tensor_ops_torch.rms_norm(x, weight), x, direction)
        wide = x.detach().double().requires_grad_()
        exact = tensor_ops_torch.rms_norm(wide, weight.double())
        (expected,) = torch.autograd.grad(exact, wide, direction.double())
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-25)

    def test_only_those_needed(self):
        x, weight = draw(3, 6), draw(6).detach()
        y = tensor_ops_torch.rms_norm(x, weight)
        y.sum().backward()
        assert x.grad is not None
        assert weight.grad is None


class TestTransforms:
    def test_compile_without_graph_breaks(self, derived):
        torch._dynamo.reset()
        compiled = torch.compile(derived.operator, fullgraph=True, backend=BACKEND)
        found = gradients_of(compiled, derived.arrays())
        expected = gradients_of(derived.operator, derived.arrays())
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)

    def test_vmap(self, call):
        tensors = [each.detach() for each in call.arrays()]
        # All mapped, each along another axis, then the first alone.
        batches = [torch.stack((each, -each, each / 2)) for each in tensors]
        moved = [each.movedim(0, index % each.ndim) for index, each in enumerate(batches)]
        axes = tuple(index % each.ndim for index, each in enumerate(batches))
        for values, dims in (
            (moved, axes),
            ([batches[0], *tensors[1:]], (0, *(None,) * (len(tensors) - 1))),
        ):
            mapped = torch.vmap(call.operator, dims)(*values)
            for index in range(3):
                single = [
                    each if dim is None else each.select(dim, index)
                    for each, dim in zip(values, dims, strict=True)
                ]
                expected = as_tuple(call.operator(*single))
                for one, other in zip(as_tuple(mapped), expected, strict=True):
                    assert torch.equal(one[index], other)

    def test_per_sample_gradients(self):
        x, weight = torch.randn(5, 3, 4), torch.randn(4)

        def loss(weight, x):
            return tensor_ops_torch.rms_norm(x, weight).square().sum()

        found = torch.vmap(torch.func.grad(loss), (None, 0))(weight, x)
        for each, sample in zip(found, x, strict=True):
            torch.testing.assert_close(each, torch.func.grad(loss)(weight, sample))

    def test_second_derivatives(self):
        x = torch.randn(4, dtype=torch.float64)
        found, expected = (
            torch.func.jacrev(torch.func.grad(lambda x, f=f: f(x).sum()))(x)
            for f in (tensor_ops_torch.silu, torch.nn.functional.silu)
        )
        torch.testing.assert_close(found, expected)

    def test_autocast_brings_arguments_to_the_widest_dtype(self):
        x, weight = torch.randn(2, 4, dtype=torch.bfloat16), torch.randn(4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = tensor_ops_torch.rms_norm(x, weight)
            assert tensor_ops_torch.silu(x).dtype is torch.bfloat16
        assert torch.equal(found, tensor_ops_torch.rms_norm(x.float(), weight))

    def test_meta_tensors(self, call):
        tensors = [each.detach().to("meta") for each in call.arrays()]
        found = as_tuple(call.operator(*tensors))
        for each, like in zip(found, as_tuple(call.operator(*call.arrays())), strict=True):
            assert (each.device.type, each.shape) == ("meta", like.shape)

    def test_threads(self):
        x, weight = torch.randn(64, 256), torch.randn(256)
        expected = tensor_ops_torch.rms_norm(x, weight)
        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(tensor_ops_torch.rms_norm, x, weight) for _ in range(64)]
        assert all(torch.equal(future.result(), expected) for future in futures)


class TestErrors:
    @pytest.mark.parametrize("device", ["cpu", "meta"])
    @pytest.mark.parametrize(
        ("name", "arguments", "error", "message"),
        [
            ("silu", [torch.ones(3, dtype=torch.int64)], TypeError, "int64.*float32"),
            ("silu", [torch.ones(3, dtype=torch.complex64)], TypeError, "complex64"),
            ("rms_norm", [torch.ones(2, 8), torch.ones(7)], ValueError, r"weight.*\(8,\)"),
            ("rms_norm", [torch.ones(()), torch.ones(1)], ValueError, "at least one axis"),
            ("rms_norm", [torch.ones(8), torch.ones(8).double()], TypeError, "weight.*float64"),
            ("silu_mul", [torch.ones(8), torch.ones(1, 8)], ValueError, "up.*shape"),
            ("rope", [torch.ones(3), torch.ones(1), torch.ones(1)], ValueError, "even length"),
            ("rope", [torch.ones(4), torch.ones(3), torch.ones(2)], ValueError, "cos.*shape"),
        ],
    )
    def test_what_does_not_fit(self, device, name, arguments, error, message):
        with pytest.raises(error, match=message):
            OPERATORS[name](*(each.to(device) for each in arguments))

    @pytest.mark.parametrize("backend", ["python", "torch"])
    def test_a_backend_of_numpy_arrays_speaks_of_tensors(self, backend):
        x = torch.ones(2, 4)
        for dtype in (torch.float8_e4m3fn, torch.int32):
            with (
                tensor_ops.use_backend(backend),
                pytest.raises(TypeError, match=rf"up has dtype {dtype}.*up\.to\(gate\.dtype\)"),
            ):
                tensor_ops_torch.silu_mul(x, x.to(dtype))

    @pytest.mark.parametrize(
        ("name", "args", "kwargs", "message"),
        [
            ("silu", [[1.0]], {}, r"silu: x must be a torch\.Tensor, got builtins\.list"),
            ("silu", [], {"x": np.ones(2)}, r"got numpy\.ndarray; .*torch\.as_tensor"),
            ("rms_norm", [torch.ones(2), [1.0]], {}, r"weight must be a torch\.Tensor, got .*list"),
            ("silu", [], {}, r"missing a required argument: 'x'; the arguments are \(x"),
            ("softmax", [torch.ones(2)], {"dim": -1}, r"unexpected keyword argument 'dim'"),
            ("silu", [torch.ones(2), 1], {}, "too many positional arguments"),
            ("gelu", [torch.ones(2), None], {}, "approximate must be a string, got NoneType"),
            ("softmax", [torch.ones(2), "x"], {}, "scale must be a real number, got str"),
            ("rms_norm", [torch.ones(2)] * 2, {"eps": 1j}, "eps must be a real number"),
        ],
    )
    @pytest.mark.parametrize("grad", [True, False])
    def test_arguments_that_do_not_fit(self, name, args, kwargs, message, grad):
        with torch.set_grad_enabled(grad), pytest.raises(TypeError, match=message):
            getattr(tensor_ops_torch, name)(*args, **kwargs)

    def test_sparse_tensors(self):
        with pytest.raises(TypeError, match=r"sparse_coo.*to_dense"):
            tensor_ops_torch.silu(torch.ones(3).to_sparse())


class TestSelection:
    def test_a_named_backend_runs(self, monkeypatch):
        calls = []
        monkeypatch.setattr(
            tensor_ops.ops.OPS["silu"], "body", lambda **values: calls.append(values)
        )
        with tensor_ops.use_backend("python"):
            tensor_ops_torch.silu(torch.ones(3))
        assert len(calls) == 1

    def test_a_named_backend_that_is_missing_is_an_error(self):
        table = tensor_ops.config.state.table_for("mps", "a test")
        with pytest.raises(tensor_ops.BackendUnavailableError, match="mps"):
            Route(OPS["silu"], in_place=True).function(table, "float32", "float32")

    def test_nothing_but_a_name_takes_tensors_from_the_cpu(self, monkeypatch):
        """A backend with memory of its own is passed over, unless it was asked for."""
        copying = types.SimpleNamespace(
            API_VERSION=1, supports=lambda *_: None, silu=lambda *_, **__: None
        )
        can = Capabilities(copies_host_arrays=True)
        known = {"cuda": tensor_ops.backends.Backend("cuda", copying, None, capabilities=can)}
        monkeypatch.setattr(tensor_ops.backends, "loaded", tensor_ops.backends.loaded | known)
        route = Route(OPS["silu"], in_place=True)
        levels = [tensor_ops.config.selection.BUILT_IN]
        auto = tensor_ops.config.state.DispatchTable(tensor_ops.config.selection.decide(levels))
        assert route.function(auto, "float32", "float32") is not copying.silu
        level = tensor_ops.config.selection.ConfigLevel("a test", preferred="cuda")
        preferred = tensor_ops.config.state.DispatchTable(
            tensor_ops.config.selection.decide([level])
        )
        assert route.function(preferred, "float32", "float32") is copying.silu


def test_devices_of_no_backend_say_so_once(monkeypatch):
    monkeypatch.setattr(definition, "warned_of", set())
    kernel = definition.device_kernel(tensor_ops.ops.OPS["silu"], FORMULAS["silu"].composed)
    x = torch.ones(3, device="meta")  # stands for a device that is not here
    with pytest.warns(tensor_ops.BackendFallbackWarning, match="no backend can run.*meta"):
        kernel(x)
    kernel(x)
    with pytest.raises(tensor_ops.BackendError), tensor_ops.use_backend("cpp"):
        kernel(x)


def test_devices_of_no_backend_check_scalars(monkeypatch):
    monkeypatch.setattr(definition, "warned_of", {"meta"})
    x, weight = torch.ones(2, 4, device="meta"), torch.ones(4, device="meta")
    for name, args, message in (
        ("rms_norm", (x, weight, -1.0), "rms_norm: eps is -1.0, expected a finite number >= 0"),
        ("gelu", (x, "erf"), "gelu: approximate is 'erf', expected 'tanh' or 'none'"),
    ):
        kernel = definition.device_kernel(tensor_ops.ops.OPS[name], FORMULAS[name].composed)
        with pytest.raises(ValueError, match=message):
            kernel(*args)
