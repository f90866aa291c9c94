"""The use of automatic mixed precision on a device.

>>> import tensor_ops_devices
>>> tensor_ops_devices.resolve_amp_config("cpu")
{'enabled': False, 'dtype': None, 'use_grad_scaler': False}
"""

from __future__ import annotations

from typing import TypedDict

from tensor_ops import BackendError, BackendUnavailableError
from tensor_ops.extension import AUTO
from tensor_ops_devices.devices.device import as_device, resolve_torch_device, why_not
from tensor_ops_devices.pytorch import torch

__all__ = ["AMPConfig", "resolve_amp_config"]


class AMPConfig(TypedDict):
    """The policy: what `torch.autocast` and `torch.amp.GradScaler` are given."""

    enabled: bool
    dtype: torch.dtype | None
    use_grad_scaler: bool


def resolve_amp_config(
    device: torch.device | str | None, dtype: torch.dtype | None = None
) -> AMPConfig:
    """Return the policy of automatic mixed precision for a device.

    Parameters
    ----------
    device : torch.device, str or None
        Of type cpu, cuda (CUDA or ROCm) or mps. None is the device that
        ``resolve_torch_device("auto")`` returns.
    dtype : {torch.float16, torch.bfloat16}, optional
        What to compute in. By default float16 on GPUs, and no mixed precision on the CPU, which
        has bfloat16 on request only.

    Returns
    -------
    dict
        ``enabled``: whether autocast is on; ``dtype``: what it computes in, None when it is off;
        ``use_grad_scaler``: whether gradients must be scaled, which float16 on CUDA and ROCm
        wants. bfloat16 has the range of float32 and wants none.

    Raises
    ------
    BackendError
        If PyTorch or the device has no autocast in that dtype, if bfloat16 is asked for of a GPU
        that is not there, or PyTorch is missing.

    Examples
    --------
    >>> import torch
    >>> import tensor_ops_devices
    >>> policy = tensor_ops_devices.resolve_amp_config("cpu", dtype=torch.bfloat16)
    >>> policy
    {'enabled': True, 'dtype': torch.bfloat16, 'use_grad_scaler': False}
    >>> layer = torch.nn.Linear(4, 2)
    >>> with torch.autocast("cpu", enabled=policy["enabled"], dtype=policy["dtype"]):
    ...     layer(torch.ones(3, 4)).dtype
    torch.bfloat16
    """
    found = resolve_torch_device(AUTO) if device is None else as_device(device)
    kind = found.type
    default = {"cuda": torch.float16, "mps": torch.float16, "cpu": None}
    if kind not in default:
        expected = ", ".join(default)
        raise BackendError(
            f"there is no policy for device {str(found)!r}, expected a device of type {expected}"
        )
    if dtype not in (None, torch.float16, torch.bfloat16):
        raise BackendError(f"dtype is {dtype!r}, expected torch.float16 or torch.bfloat16")
    if dtype is None:
        dtype = default[kind]
    elif reason := _lacks(kind, dtype):
        raise BackendUnavailableError(f"no autocast in {dtype} on {str(found)!r}: {reason}", kind)
    scaled = kind == "cuda" and dtype is torch.float16
    return {"enabled": dtype is not None, "dtype": dtype, "use_grad_scaler": scaled}


def _lacks(kind: str, dtype: torch.dtype) -> str | None:
    """Return why a device has no autocast in a dtype that was asked for, None if it has."""
    if kind == "cpu" and dtype is torch.float16:
        return "float16 wants scaled gradients, which are for GPUs here; ask for torch.bfloat16"
    if kind == "cpu" or dtype is torch.float16:
        return None
    # Only a device itself tells whether it has bfloat16.
    if (reason := why_not(kind)) is not None:
        return reason
    if kind == "cuda" and not torch.cuda.is_bf16_supported():
        return "its GPU computes none; leave dtype out for torch.float16"
    if kind == "mps" and not torch.backends.mps.is_macos_or_newer(14, 0):
        return "it takes macOS 14 or newer; leave dtype out for torch.float16"
    return None
