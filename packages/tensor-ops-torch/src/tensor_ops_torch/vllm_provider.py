"""tensor_ops as a provider of vLLM's IR ops, which users choose by ``ir_op_priority``.

vLLM finds `register` by the entry point group ``vllm.general_plugins`` and calls it in each of its
processes. Nothing of this package imports vLLM otherwise.
"""

import logging
import math
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from tensor_ops import BackendError
from tensor_ops.extension import OPS, decision, function_of
from tensor_ops_torch.operators.tensors import DTYPE_NAMES, HALF, device_route
from tensor_ops_torch.ops import FUNCTIONS

__all__ = ["PROVIDER", "TESTED_VERSION", "register"]

#: The name of the provider in vLLM's ``ir_op_priority``.
PROVIDER = "tensor_ops"
#: The version of vLLM that the provider was tested with.
TESTED_VERSION = "0.32.0"

_logger = logging.getLogger(__name__)
_compute_rms_norm = FUNCTIONS["rms_norm"]
_compute_add_rms_norm = FUNCTIONS["add_rms_norm"]


def register() -> None:
    """Register tensor_ops as a provider of the IR ops of vLLM that tensor_ops has.

    A further call changes nothing. Where vLLM has no such ops, or has changed how they are
    registered, a warning is logged and vLLM goes on without this provider.

    Examples
    --------
    >>> from tensor_ops_torch import vllm_provider
    >>> vllm_provider.register()
    >>> vllm_provider.register()
    """
    try:
        ops = import_module("vllm.ir.ops")
    except ImportError as error:
        _logger.warning(
            "tensor_ops is not registered as a provider of vLLM's IR ops: %s. It needs vLLM %s or "
            "another version that has vllm.ir.ops; found %s. vLLM computes without it",
            error,
            TESTED_VERSION,
            _vllm_version(),
        )
        return
    for name, (implementation, supports_args) in _IMPLEMENTATIONS.items():
        try:
            _register(getattr(ops, name), implementation, supports_args)
        except (AssertionError, AttributeError, TypeError, ValueError) as error:
            _logger.warning(
                "tensor_ops is not registered as a provider of vllm.ir.ops.%s: %s: %s. It was "
                "tested with vLLM %s; found %s. vLLM computes this op without it",
                name,
                type(error).__name__,
                error,
                TESTED_VERSION,
                _vllm_version(),
            )


def _register(
    op: Any, implementation: Callable[..., Any], supports_args: Callable[..., bool]
) -> None:
    registered = op.impls.get(PROVIDER)
    if registered is None:
        op.register_impl(PROVIDER, supports_args=supports_args)(implementation)
    elif registered.impl_fn is not implementation:
        raise ValueError(
            f"{registered.impl_fn.__module__} has registered another provider of the name "
            f"{PROVIDER!r}, which stays; set VLLM_PLUGINS to the plugins that are to be loaded"
        )


def _vllm_version() -> str:
    version = getattr(sys.modules.get("vllm"), "__version__", None)
    return "no vLLM" if version is None else f"vLLM {version}"


# vLLM reads the annotations of these functions and compares the signatures with those of its own
# functions. Where it traces a model without wrapping the IR ops as operators, as it does on CPUs,
# torch.compile traces them too.


def _rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    return _compute_rms_norm(x, weight, epsilon)


def _supports_rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return variance_size is None and _supports("rms_norm", x, weight, epsilon)


# Not registered as an implementation in place: where vLLM allows one that overwrites its arguments,
# new results are right, too.
def _fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    return _compute_add_rms_norm(x, x_residual, weight, epsilon)


def _supports_fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    return (
        variance_size is None
        # vLLM returns the sum in the dtype of x, tensor_ops in that of the residual.
        and x_residual.dtype == x.dtype
        and x_residual.shape == x.shape
        and x_residual.device == x.device
        and _supports("add_rms_norm", x, weight, epsilon)
    )


def _supports(name: str, x: Tensor, weight: Tensor | None, epsilon: float) -> bool:
    """Return whether an op computes these rows with this weight as vLLM means it."""
    return (
        weight is not None
        # vLLM computes float64 in float32, and rounds to the dtype of the weight on the way.
        and (x.dtype is torch.float32 or x.dtype in HALF)
        and (weight.dtype == x.dtype or weight.dtype is torch.float32)
        and x.dim() > 0
        and weight.dim() == 1
        and weight.shape[0] == x.shape[-1]
        and weight.device == x.device
        and 0 <= epsilon < math.inf
        and (x.is_cpu or _has_backend(name, x.device, x.dtype))
    )


# torch.compile keeps the answer of one call in what it compiles, as it does a device and a dtype.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_backend(name: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a backend computes an op on a device that is no CPU.

    True as well where one that cannot is forced: the operator then raises an error.
    """
    return _looked_for_backend(name, device, dtype)


# Only asked about tensors, never by `register`: looking for a GPU there would initialize CUDA in
# the process that vLLM forks its workers from.
@cache
def _looked_for_backend(name: str, device: torch.device, dtype: torch.dtype) -> bool:
    try:
        function_of(device_route(OPS[name], device), dtype, DTYPE_NAMES[dtype])
    except BackendError as error:
        if decision().strict:
            return True
        _logger.warning("vLLM's next provider computes %s on %s: %s", name, device, error)
        return False
    return True


_IMPLEMENTATIONS: dict[str, tuple[Callable[..., Any], Callable[..., bool]]] = {
    "rms_norm": (_rms_norm, _supports_rms_norm),
    "fused_add_rms_norm": (_fused_add_rms_norm, _supports_fused_add_rms_norm),
}
