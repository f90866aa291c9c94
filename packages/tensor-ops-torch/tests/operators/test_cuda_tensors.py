"""The operators on CUDA tensors: in place, on the current stream, with the CUDA backend."""

import pytest
import torch
from operator_calls import positional

import tensor_ops
import tensor_ops_torch
from tensor_ops.ops import OPS
from tensor_ops_torch.ops import OPERATORS

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
    # Neither a fall-back nor anything else is to be warned of.
    pytest.mark.filterwarnings("error::tensor_ops.BackendFallbackWarning"),
]
ROWS, N = 96, 512
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def call_of(name):
    is_on_heads = any(kind.role == "half_rows" for kind in OPS[name].kinds.values())
    arguments = positional(name, (ROWS, 2, N) if is_on_heads else (ROWS, N))
    return [each.detach() if torch.is_tensor(each) else each for each in arguments]


def moved(arguments, *where):
    return [each.to(*where) if torch.is_tensor(each) else each for each in arguments]


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def test_the_backend_is_there():
    assert tensor_ops.is_backend_available("cuda"), tensor_ops.get_backend_info("cuda")["reason"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [name for name in OPERATORS if OPS[name].mixtures])
def test_float32_arguments_beside_half_ones(name, dtype):
    arguments = moved(call_of(name), dtype)
    for wide in OPS[name].mixtures:
        given = [
            each.float() if argument in wide else each
            for argument, each in zip(OPS[name].kinds, arguments, strict=False)
        ]
        found = OPERATORS[name](*moved(given, "cuda"))
        with tensor_ops.use_backend("python"):
            expected = OPERATORS[name](*given)
        for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
            assert (one.device.type, one.dtype) == ("cuda", other.dtype)
            torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_values(name, dtype):
    """Those of the op in float64, of the same rounded arguments."""
    arguments = moved(call_of(name), dtype)
    found = OPERATORS[name](*moved(arguments, "cuda"))
    with tensor_ops.use_backend("python"):
        expected = OPERATORS[name](*moved(arguments, torch.float64))
    for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
        assert (one.device.type, one.dtype) == ("cuda", dtype)
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(one.cpu().double(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name):
    def gradients(*where):
        arguments = moved(call_of(name), *where)
        arrays = [each.requires_grad_() for each in arguments if torch.is_tensor(each)]
        results = as_tuple(OPERATORS[name](*arguments))
        return torch.autograd.grad(sum(each.square().sum() for each in results), arrays)

    for one, other in zip(gradients("cuda"), gradients("cpu"), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-10, atol=1e-10)


def test_nothing_waits_for_the_device():
    arguments = {name: moved(call_of(name), "cuda", torch.float32) for name in OPERATORS}
    for name, values in arguments.items():
        OPERATORS[name](*values)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for name, values in arguments.items():
            OPERATORS[name](*values)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_current_stream_is_used():
    x, stream = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(1)
        y = tensor_ops_torch.silu(x)
    stream.synchronize()
    assert torch.equal(y, tensor_ops_torch.silu(torch.ones_like(x)))


def test_graphs_are_captured():
    x = torch.randn(64, 256, device="cuda")
    weight = torch.randn(256, device="cuda")
    tensor_ops_torch.rms_norm(x, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = tensor_ops_torch.rms_norm(x, weight)
    x.mul_(-2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, tensor_ops_torch.rms_norm(x, weight))


@pytest.mark.parametrize("name", OPERATORS)
def test_compile_without_graph_breaks(name):
    torch._dynamo.reset()
    arguments = moved(call_of(name), "cuda", torch.float32)
    compiled = torch.compile(OPERATORS[name], fullgraph=True, backend="aot_eager")
    for one, other in zip(
        as_tuple(compiled(*arguments)), as_tuple(OPERATORS[name](*arguments)), strict=True
    ):
        assert torch.equal(one, other)


def test_two_devices_are_an_error():
    with pytest.raises(ValueError, match=r"weight is on cpu, expected cuda:0"):
        tensor_ops_torch.rms_norm(torch.ones(2, 4, device="cuda"), torch.ones(4))


def test_a_forced_backend_of_the_cpu_is_an_error():
    with pytest.raises(tensor_ops.BackendError, match="cuda:0"), tensor_ops.use_backend("python"):
        tensor_ops_torch.silu(torch.ones(4, device="cuda"))
