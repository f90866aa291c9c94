"""The operators on CUDA tensors: in place, on the current stream, with the CUDA backend."""

import pytest
import torch

import tensor_ops
import tensor_ops_torch

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
    # Neither a fall-back nor anything else is to be warned of.
    pytest.mark.filterwarnings("error::tensor_ops.BackendFallbackWarning"),
]
ROWS, N = 96, 512
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def tensors_of(call, *where):
    return [each.detach().to(*where) for each in call.arrays(ROWS, N)]


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def test_the_backend_is_there():
    assert tensor_ops.is_backend_available("cuda"), tensor_ops.get_backend_info("cuda")["reason"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_float32_arguments_beside_half_ones(call, dtype):
    names = [name for name, kind in call.op.kinds.items() if kind.is_array]
    for wide in call.op.mixtures:
        given = [
            each.float() if name in wide else each
            for name, each in zip(names, tensors_of(call, dtype), strict=False)
        ]
        found = call.operator(*(each.cuda() for each in given))
        with tensor_ops.use_backend("python"):
            expected = call.operator(*given)
        for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
            assert (one.device.type, one.dtype) == ("cuda", other.dtype)
            torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values(call, dtype):
    """Results of the op in float64, of the same rounded arguments."""
    tensors = tensors_of(call, dtype)
    found = call.operator(*(each.cuda() for each in tensors))
    with tensor_ops.use_backend("python"):
        expected = call.operator(*(each.double() for each in tensors))
    for one, other in zip(as_tuple(found), as_tuple(expected), strict=True):
        assert (one.device.type, one.dtype) == ("cuda", dtype)
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(one.cpu().double(), other, rtol=tolerance, atol=tolerance)


def test_gradients(derived):
    def gradients(device):
        tensors = [each.requires_grad_() for each in tensors_of(derived, device)]
        results = as_tuple(derived.operator(*tensors))
        return torch.autograd.grad(sum(each.square().sum() for each in results), tensors)

    for one, other in zip(gradients("cuda"), gradients("cpu"), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-10, atol=1e-10)


def test_nothing_waits_for_the_device(call):
    tensors = tensors_of(call, "cuda", torch.float32)
    call.operator(*tensors)
    torch.cuda.set_sync_debug_mode("error")
    try:
        call.operator(*tensors)
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


def test_compile_without_graph_breaks(call):
    torch._dynamo.reset()
    tensors = tensors_of(call, "cuda", torch.float32)
    compiled = torch.compile(call.operator, fullgraph=True, backend="aot_eager")
    for one, other in zip(
        as_tuple(compiled(*tensors)), as_tuple(call.operator(*tensors)), strict=True
    ):
        assert torch.equal(one, other)


def test_two_devices_are_an_error():
    with pytest.raises(ValueError, match=r"weight is on cpu, expected cuda:0"):
        tensor_ops_torch.rms_norm(torch.ones(2, 4, device="cuda"), torch.ones(4))


def test_a_forced_backend_of_the_cpu_is_an_error():
    with pytest.raises(tensor_ops.BackendError, match="cuda:0"), tensor_ops.use_backend("python"):
        tensor_ops_torch.silu(torch.ones(4, device="cuda"))
