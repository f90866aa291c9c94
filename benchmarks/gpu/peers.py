"""The same ops of other libraries, on torch tensors, each as its users would call it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from gpu.parts import Part
from gpu.timing import Call
from tensor_ops.variants import VARIANTS

__all__ = ["OURS", "calls"]

OURS = "tensor_ops_cuda"
RMS_EPS, LAYER_EPS = 1e-6, 1e-5


def calls(part: Part, values: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Yield the name of each library that has the op, and what makes its call on these arrays.

    Making a call may fail where the library does not fit the others that are installed.
    """
    given = list(values.values())
    yield OURS, lambda: functools.partial(_ours(part), *given)
    from peers import torch as eager

    if part.variant in eager.PLAIN:
        yield "torch", lambda: functools.partial(eager.PLAIN[part.variant], *given)
        yield "torch.compile", lambda: _compiled(part, given)
    for name, table in (("Liger-Kernel", _liger), ("QuACK", _quack), ("CuPy", _cupy)):
        try:
            known = table()
        except ImportError:
            continue
        if part.variant in known and not (name == "CuPy" and part.dtype == "bfloat16"):
            yield name, functools.partial(known[part.variant], *given)


def _ours(part: Part) -> Callable[..., Any]:
    import tensor_ops_cuda

    variant = VARIANTS[part.variant]
    return functools.partial(getattr(tensor_ops_cuda, variant.op.name), **variant.options)


# --- torch.compile -----------------------------------------------------------


def _compiled(part: Part, given: list[Any]) -> Call:
    """Return a call compiled for this length of rows and any number of them."""
    import torch

    rows = given[0].shape[0]
    if rows > 1:
        for tensor in given:
            if tensor.ndim > 1 and tensor.shape[0] == rows:
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
    function = _compiled_function(part.variant)
    function(*given)
    return functools.partial(function, *given)


@functools.cache
def _compiled_function(variant: str) -> Any:
    import torch

    from peers import torch as eager

    # One function for all dtypes and lengths of rows, each compiled for itself.
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.automatic_dynamic_shapes = False
    return torch.compile(eager.PLAIN[variant])


# --- Liger-Kernel ------------------------------------------------------------


@functools.cache
def _liger() -> dict[str, Callable[..., Call]]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.geglu import LigerGELUMulFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.softmax import LigerSoftmaxFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    def of(function: Any, *options: Any) -> Callable[..., Call]:
        return lambda *given: functools.partial(function.apply, *given, *options)

    return {
        "rms_norm": of(LigerRMSNormFunction, RMS_EPS),
        "add_rms_norm": of(LigerFusedAddRMSNormFunction, RMS_EPS),
        "layer_norm": of(LigerLayerNormFunction, LAYER_EPS),
        "silu_mul": of(LigerSiLUMulFunction),
        "gelu_mul:tanh": of(LigerGELUMulFunction),
        "softmax": of(LigerSoftmaxFunction),
    }


# --- QuACK -------------------------------------------------------------------


@functools.cache
def _quack() -> dict[str, Callable[..., Call]]:
    from quack.rmsnorm import rmsnorm
    from quack.softmax import softmax

    return {
        "rms_norm": lambda x, weight: functools.partial(rmsnorm, x, weight, eps=RMS_EPS),
        "softmax": lambda x: functools.partial(softmax, x),
    }


# --- CuPy --------------------------------------------------------------------


@functools.cache
def _cupy() -> dict[str, Callable[..., Call]]:
    """Return fused elementwise functions and CuPy's softmax, on the tensors' memory."""
    import cupy
    from cupyx.scipy.special import erf, softmax

    def silu(x: Any) -> Any:
        return x / (1 + cupy.exp(-x))

    def gelu_tanh(x: Any) -> Any:
        return 0.5 * x * (1 + cupy.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def gelu_none(x: Any) -> Any:
        return 0.5 * x * (1 + erf(x * 0.7071067811865476))

    def fused(function: Callable[..., Any]) -> Callable[..., Call]:
        kernel = cupy.fuse(function)

        def make(*tensors: Any) -> Call:
            arrays = tuple(map(cupy.asarray, tensors))
            return functools.partial(_on_torch_stream, cupy, kernel, arrays)

        return make

    return {
        "silu": fused(silu),
        "silu_mul": fused(lambda gate, up: silu(gate) * up),
        "gelu:tanh": fused(gelu_tanh),
        "gelu_mul:tanh": fused(lambda gate, up: gelu_tanh(gate) * up),
        "gelu:none": fused(gelu_none),
        "softmax": lambda x: functools.partial(
            _on_torch_stream, cupy, lambda a: softmax(a, axis=-1), (cupy.asarray(x),)
        ),
    }


def _on_torch_stream(cupy: Any, function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("CuPy allocates memory, which a graph of torch does not capture")
    return function(*arrays)
