"""Checks that need a GPU: streams, graphs, other libraries' arrays, threads, memory's end."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from checks import AbsentError, Checks, registered, run

import tensor_ops_cuda as ops

CHECKS: Checks = {}
check = registered(CHECKS)
ROWS, N = 512, 4096


# --- torch -------------------------------------------------------------------


@check
def torch_result_is_a_tensor() -> None:
    """torch: the result is a tensor on the input's device, right, and new."""
    torch, x, weight = random_tensors()
    y = ops.rms_norm(x, weight)
    assert isinstance(y, torch.Tensor), type(y)
    assert y.device == x.device
    assert y.dtype == x.dtype
    assert_close(torch, y, torch.nn.functional.rms_norm(x, (N,), weight, 1e-6))


@check
def torch_float32_parameters_beside_half() -> None:
    """torch: a float32 parameter and residual beside bfloat16, where no gradient is recorded."""
    torch, x, weight = random_tensors()
    parameter, half, residual = torch.nn.Parameter(weight), x.bfloat16(), 2 * x
    with torch.inference_mode():
        y, h = ops.add_rms_norm(half, residual, parameter)
    assert (y.dtype, h.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(h, half.float() + residual)
    wanted = torch.nn.functional.rms_norm(h, (N,), weight, 1e-6)
    assert_close(torch, y.float(), wanted, 1e-2)


@check
def torch_out_and_strides() -> None:
    """torch: out=, in place, and rows apart from each other."""
    torch, x, weight = random_tensors()
    wide = torch.empty((ROWS, 2 * N), device="cuda")
    view = wide[:, N:]
    view.copy_(x)
    y = torch.empty_like(x)
    assert ops.rms_norm(view, weight, out=y) is y
    assert_close(torch, y, torch.nn.functional.rms_norm(x, (N,), weight, 1e-6))
    wanted = torch.nn.functional.silu(view)
    assert ops.silu(view, out=view) is view
    assert_close(torch, view, wanted)


@check
def torch_current_stream() -> None:
    """torch: the kernel waits for what is on the current stream, and for nothing else."""
    torch, x, _ = random_tensors()
    stream = torch.cuda.Stream()
    y = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = x + 1
        ops.silu(late, out=y)
        done = stream.record_event()
    assert not done.query(), "the call has waited for the stream"
    assert torch.cuda.default_stream().query(), "the call has used the default stream"
    done.synchronize()
    assert_close(torch, y, torch.nn.functional.silu(x + 1))


@check
def torch_graph() -> None:
    """torch: calls are captured in a graph and replayed on new values."""
    torch, x, weight = random_tensors()
    residual = torch.randn_like(x)
    y = torch.empty_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            ops.softmax(ops.rms_norm(x, weight), out=y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first, total = ops.add_rms_norm(x, residual, weight)
        ops.softmax(first, out=y)
    for seed in range(3):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        graph.replay()
        wanted = torch.nn.functional.rms_norm(x + residual, (N,), weight, 1e-6)
        assert_close(torch, y, torch.softmax(wanted, -1))
        assert_close(torch, total, x + residual)


@check
def torch_long_rows_in_graph() -> None:
    """torch: rows that take several passes are captured too."""
    torch = torch_with_gpu()
    x = torch.randn((4, 1 << 20), device="cuda")
    ops.softmax(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.softmax(x)
    x.normal_()
    graph.replay()
    assert_close(torch, y, torch.softmax(x, -1))


@check
def torch_many_elements() -> None:
    """torch: more than 2**31 elements."""
    torch = torch_with_gpu()
    count = (1 << 31) + 4099
    if torch.cuda.mem_get_info()[0] < 6 * count:
        raise AbsentError("the device has too little memory")
    x = torch.empty(count, dtype=torch.bfloat16, device="cuda")
    x.normal_()
    y = ops.silu(x)
    for part in (slice(0, 1000), slice(count - 5000, count), slice((1 << 31) - 50, (1 << 31) + 50)):
        assert_close(torch, y[part].float(), torch.nn.functional.silu(x[part].float()), 1e-2)
    del x, y
    torch.cuda.empty_cache()


@check
def torch_threads() -> None:
    """torch: eight threads, each on a stream of its own."""
    torch = torch_with_gpu()
    problems: list[str] = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator("cuda").manual_seed(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                x = torch.randn((64, 1000 + seed), device="cuda", generator=generator)
                wanted = ops.softmax(x)
                for _ in range(300):
                    if not torch.equal(ops.softmax(x), wanted):
                        problems.append(f"thread {seed}: results differ")
                        return
        except Exception as error:
            problems.append(f"thread {seed}: {error!r}")

    _in_threads(work)
    assert not problems, problems


@check
def torch_batch_invariance() -> None:
    """torch: a row's bits do not depend on the rows around it."""
    torch = torch_with_gpu()
    for n in (64, 1000, 4096, 16384, 65536, 1 << 20):
        rows = max(2, min(4096, (1 << 24) // n))
        x = torch.randn((rows, n), device="cuda").bfloat16()
        weight = torch.randn(n, device="cuda").bfloat16()
        for name, given in (("rms_norm", (weight,)), ("layer_norm", (weight,)), ("softmax", ())):
            op = getattr(ops, name)
            whole = op(x, *given)
            for row in (0, 1, rows - 1):
                alone = op(x[row : row + 1], *given)
                assert torch.equal(alone[0], whole[row]), f"{name}, rows of {n}"


@check
def torch_memory_ends() -> None:
    """torch: no memory left is MemoryError, and the next call works."""
    torch, x, weight = random_tensors()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    big = torch.empty(int(free * 0.6) // 2, dtype=torch.bfloat16, device="cuda")
    try:
        ops.silu(big)
    except MemoryError:
        pass
    else:
        raise AssertionError("no MemoryError")
    finally:
        del big
        torch.cuda.empty_cache()
    assert_close(
        torch, ops.rms_norm(x, weight), torch.nn.functional.rms_norm(x, (N,), weight, 1e-6)
    )


@check
def torch_several_gpus() -> None:
    """torch: every GPU, from a thread each."""
    torch = torch_with_gpu()
    count = torch.cuda.device_count()
    if count < 2:
        raise AbsentError("one GPU")
    problems: list[str] = []

    def work(index: int) -> None:
        try:
            x = torch.randn((128, N), device=f"cuda:{index % count}")
            y = ops.silu(x)
            assert y.device == x.device
            assert_close(torch, y, torch.nn.functional.silu(x))
        except Exception as error:
            problems.append(repr(error))

    _in_threads(work)
    assert not problems, problems


@check
def torch_wrong_arguments() -> None:
    """torch: arrays on two devices, and one that requires a gradient, are errors."""
    _, x, weight = random_tensors()
    for bad in (
        lambda: ops.rms_norm(x, weight.cpu()),
        lambda: ops.silu(x.clone().requires_grad_()),
    ):
        try:
            bad()
        except (TypeError, ValueError, RuntimeError, BufferError):
            continue
        raise AssertionError("no error")


# --- other libraries ---------------------------------------------------------


@check
def cupy_arrays() -> None:
    """CuPy: arrays in, arrays out, on CuPy's current stream."""
    cupy = _module("cupy")
    x = cupy.random.standard_normal((ROWS, N), dtype=cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y = ops.silu(x)
        stream.synchronize()
    assert isinstance(y, cupy.ndarray), type(y)
    assert float(abs(y - x / (1 + cupy.exp(-x))).max()) < 1e-5
    assert ops.silu(x, out=x) is x
    assert bool((x == y).all())


@check
def jax_arrays() -> None:
    """JAX: arrays in, arrays out."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = _module("jax")
    if jax.default_backend() != "gpu":
        raise AbsentError(f"jax runs on the {jax.default_backend()}")
    x = jax.random.normal(jax.random.key(0), (ROWS, N))
    y = ops.silu(x)
    assert isinstance(y, jax.Array), type(y)
    assert float(abs(y - jax.nn.silu(x)).max()) < 1e-5


@check
def numba_arrays() -> None:
    """Numba: arrays through __cuda_array_interface__."""
    cuda = _module("numba.cuda")
    if not cuda.is_available():
        raise AbsentError("numba finds no GPU")
    host = np.random.default_rng(0).standard_normal((ROWS, N), dtype=np.float32)
    x = cuda.to_device(host)
    out = cuda.device_array_like(x)
    ops.silu(x, out=out)
    cuda.synchronize()
    assert np.abs(out.copy_to_host() - host / (1 + np.exp(-host))).max() < 1e-5


# --- without any -------------------------------------------------------------


@check
def device_arrays() -> None:
    """DeviceArray: from NumPy, through two ops, and back."""
    if not hasattr(ops, "to_device"):
        raise AbsentError("tensor_ops_cuda has no to_device")
    host = np.random.default_rng(0).standard_normal((ROWS, N), dtype=np.float32)
    x = ops.to_device(host)
    y = ops.silu(x)
    assert isinstance(y, ops.DeviceArray)
    assert np.abs(y.numpy() - ops.silu(host)).max() == 0


@check
def numpy_threads() -> None:
    """NumPy arrays from eight threads."""
    host = np.random.default_rng(0).standard_normal((64, N), dtype=np.float32)
    wanted = ops.softmax(host) if hasattr(ops, "softmax") else ops.silu(host)
    op = ops.softmax if hasattr(ops, "softmax") else ops.silu
    problems: list[str] = []

    def work(seed: int) -> None:
        try:
            if not all(np.array_equal(op(host), wanted) for _ in range(20)):
                problems.append(f"thread {seed}: results differ")
        except Exception as error:
            problems.append(f"thread {seed}: {error!r}")

    _in_threads(work)
    assert not problems, problems


@check
def forked_child() -> None:
    """A forked child is told so, at once, and the parent goes on."""
    host = np.ones((4, 8), np.float32)
    ops.silu(host)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "no error"
        try:
            ops.silu(host)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert "fork" in said, said
    ops.silu(host)


def torch_with_gpu() -> Any:
    torch = _module("torch")
    if not torch.cuda.is_available():
        raise AbsentError("torch finds no GPU")
    return torch


def random_tensors() -> tuple[Any, Any, Any]:
    torch = torch_with_gpu()
    torch.manual_seed(0)
    return torch, torch.randn((ROWS, N), device="cuda"), torch.randn(N, device="cuda")


def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise AbsentError(f"no {name} is installed: {error}") from None


def assert_close(torch: Any, got: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def _in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    sys.exit(run(CHECKS))
