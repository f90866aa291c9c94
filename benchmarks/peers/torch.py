"""PyTorch, eager: its own functions, and compositions of those that take ``out=``."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from comparison.cases import Case
from peers import Way

LABEL = "PyTorch"
PACKAGES = ("torch",)

RMS_EPS, LAYER_EPS = 1e-6, 1e-5

Tensor = torch.Tensor
aten = torch.ops.aten


def start(threads: int) -> None:
    """Set the number of threads; nothing here is differentiated."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


def ways(case: Case, values: dict[str, Any], out: tuple[Any, ...] | None) -> dict[str, Way]:
    """Return PyTorch's function, or the composition that writes into `out`."""
    functions: dict[str, Callable[..., Any]] = PLAIN if out is None else INTO
    given = [as_tensor(value) for value in values.values()]
    targets = [as_tensor(array) for array in out or ()]
    found = {"": _way(functools.partial(functions[case.variant], *given, *targets))}
    if case.variant == "rope:interleaved" and case.dtype in ("float32", "float64"):
        # Pairs of neighbours are complex numbers; angles are kept as such by those who do this.
        pairs = as_pairs(given[0])
        angles = torch.complex(given[1], given[2])
        turn = functools.partial(_turn, torch.view_as_complex(pairs), angles, given[0].shape)
        if targets:
            into = torch.view_as_complex(as_pairs(targets[0]))
            turn = functools.partial(_turn_into, turn.args[0], angles, into, targets[0])
        found["complex"] = _way(turn)
    return found


def as_tensor(array: Any) -> Tensor:
    """Return a tensor in the memory of an array."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_pairs(tensor: Tensor) -> Tensor:
    """Return neighbours of the last axis as pairs of a new axis."""
    return tensor.view(*tensor.shape[:-1], -1, 2)


def as_arrays(returned: Any) -> tuple[Any, ...]:
    """Return tensors as arrays, bfloat16 as the float32 of the same values."""
    results = returned if isinstance(returned, tuple) else (returned,)
    return tuple(_as_array(each) for each in results)


def _as_array(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _way(call: Callable[[], Any]) -> Way:
    return Way(call, as_arrays)


# --- new results -------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, RMS_EPS)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight), total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias, LAYER_EPS)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


PLAIN: dict[str, Callable[..., Any]] = {
    "silu": F.silu,
    "silu_mul": lambda gate, up: F.silu(gate) * up,
    "gelu:tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu:none": F.gelu,
    "gelu_mul:tanh": lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    "gelu_mul:none": lambda gate, up: F.gelu(gate) * up,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "softmax": lambda x: torch.softmax(x, -1),
    "rope": rope,
    "rope:interleaved": rope_interleaved,
}


# --- into memory that is given -----------------------------------------------


def silu_mul_into(gate: Tensor, up: Tensor, out: Tensor) -> Tensor:
    aten.silu.out(gate, out=out)
    return out.mul_(up)


def gelu_mul_into(gate: Tensor, up: Tensor, out: Tensor, approximate: str) -> Tensor:
    aten.gelu.out(gate, approximate=approximate, out=out)
    return out.mul_(up)


def rms_norm_into(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    # sums of half types in float32, as F.rms_norm takes them
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    scale = norms.square_().div_(x.shape[-1]).add_(RMS_EPS).rsqrt_()
    return torch.mul(x, scale.to(x.dtype), out=out).mul_(weight)


def add_rms_norm_into(
    x: Tensor, residual: Tensor, weight: Tensor, out: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    torch.add(x, residual, out=total)
    return rms_norm_into(total, weight, out), total


def layer_norm_into(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    mean, rstd = x.new_empty((2, *x.shape[:-1], 1))
    aten.native_layer_norm.out(
        x, (x.shape[-1],), weight, bias, LAYER_EPS, out0=out, out1=mean, out2=rstd
    )
    return out


def rope_into(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    _rotate(x.chunk(2, dim=-1), cos, sin, out.chunk(2, dim=-1))
    return out


def rope_interleaved_into(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    _rotate((x[..., ::2], x[..., 1::2]), cos, sin, (out[..., ::2], out[..., 1::2]))
    return out


def _rotate(pair: tuple[Tensor, ...], cos: Tensor, sin: Tensor, out: tuple[Tensor, ...]) -> None:
    torch.mul(pair[0], cos, out=out[0]).addcmul_(pair[1], sin, value=-1)
    torch.mul(pair[1], cos, out=out[1]).addcmul_(pair[0], sin)


def _turn(pairs: Tensor, angles: Tensor, shape: torch.Size) -> Tensor:
    return torch.view_as_real(pairs * angles).view(shape)


def _turn_into(pairs: Tensor, angles: Tensor, into: Tensor, out: Tensor) -> Tensor:
    torch.mul(pairs, angles, out=into)
    return out


INTO: dict[str, Callable[..., Any]] = {
    "silu": lambda x, out: aten.silu.out(x, out=out),
    "silu_mul": silu_mul_into,
    "gelu:tanh": lambda x, out: aten.gelu.out(x, approximate="tanh", out=out),
    "gelu:none": lambda x, out: aten.gelu.out(x, out=out),
    "gelu_mul:tanh": functools.partial(gelu_mul_into, approximate="tanh"),
    "gelu_mul:none": functools.partial(gelu_mul_into, approximate="none"),
    "rms_norm": rms_norm_into,
    "add_rms_norm": add_rms_norm_into,
    "layer_norm": layer_norm_into,
    "softmax": lambda x, out: aten._softmax.out(x, -1, False, out=out),
    "rope": rope_into,
    "rope:interleaved": rope_interleaved_into,
}

HAS = tuple(PLAIN)
