"""The hardware that there is, read from the hardware, and the best of it.

The order is that of the guide:

1. NVIDIA Hopper and Blackwell
2. TPU v5p, v6e, v7
3. NVIDIA with compute capability 8.0 (A100)
4. TPU v4, v5e, and versions unknown here
5. other GPUs: NVIDIA first, then older TPUs, AMD, Intel and Apple
6. the CPU
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tensor_ops import BackendError, ConfigError
from tensor_ops.extension import did_you_mean, machine
from tensor_ops_devices.hardware import xla
from tensor_ops_devices.hardware.config import NVIDIAArchitecture, TPUVersion
from tensor_ops_devices.hardware.cpu import allowed_memory, name_and_level
from tensor_ops_devices.hardware.profile import (
    GB,
    HardwareProfile,
    HardwareType,
    check_capability_names,
    nvidia_architecture,
    nvidia_capabilities,
    tpu_version,
)
from tensor_ops_devices.pytorch import torch

__all__ = [
    "HardwareDetector",
    "HardwareProfile",
    "HardwareType",
    "nvidia_profile",
    "priority",
    "probe",
]

PCI = Path("/sys/bus/pci/devices")
_GOOGLE = "0x1ae0"
# The chips that torch_xla looks for.
_TPU_CHIPS = {"0x0027", "0x005e", "0x0063", "0x006f", "0x0056", "0x0062", "0x0076"}
_NEW_TPUS = {TPUVersion.V5P, TPUVersion.V6E, TPUVersion.V7}
_OLD_TPUS = {TPUVersion.V2, TPUVersion.V3}
_BEST_NVIDIA = {NVIDIAArchitecture.HOPPER, NVIDIAArchitecture.BLACKWELL}
_ORDER = list(HardwareType)
# PyTorch computes these on every GPU, and on the CPU.
_ANYWHERE = frozenset({"float16", "bfloat16", "dynamic_shapes"})


class HardwareDetector:
    """Finds out which hardware this process can use.

    A device counts when this PyTorch can compute on it: the driver and the device answer, and the
    build has code for its architecture. The first question looks at the hardware, and the answer
    is kept; a new detector looks anew.

    Examples
    --------
    >>> from tensor_ops_devices.hardware.detector import HardwareDetector
    >>> detector = HardwareDetector()
    >>> profile = detector.detect()
    >>> detector.get_optimal_backend() == profile.hardware_type
    True
    >>> detector.detect_all()[-1].hardware_type.value
    'cpu'
    """

    @cached_property
    def _outcomes(self) -> dict[HardwareType, HardwareProfile | str]:
        return {kind: probe(kind) for kind in PROBES}

    def detect(self) -> HardwareProfile:
        """Return the facts of the best hardware, in the order of this module."""
        return self.detect_all()[0]

    def detect_all(self) -> tuple[HardwareProfile, ...]:
        """Return the facts of all hardware that there is, the best first, the CPU last."""
        found = (each for each in self._outcomes.values() if not isinstance(each, str))
        return tuple(sorted(found, key=priority))

    @property
    def reasons(self) -> MappingProxyType[str, str]:
        """Why each kind of hardware that is not there is not."""
        found = self._outcomes.items()
        return MappingProxyType({kind.value: each for kind, each in found if isinstance(each, str)})

    def find(self, kind: str) -> HardwareProfile | None:
        """Return the facts of one kind of hardware, None if it is not there.

        Raises
        ------
        tensor_ops.ConfigError
            If there is no such kind.
        """
        kinds = [each.value for each in HardwareType]
        if kind not in kinds:
            near = did_you_mean(str(kind), kinds)
            raise ConfigError(
                f"{kind!r} is no kind of hardware; {near}expected one of {', '.join(kinds)}"
            )
        return next((each for each in self.detect_all() if each.hardware_type == kind), None)

    def get_optimal_backend(self, requires: Collection[str] = ()) -> str:
        """Return the name of the best backend: "nvidia", "tpu", "amd", "xpu", "mps" or "cpu".

        Parameters
        ----------
        requires : collection of str
            What the work needs, of `tensor_ops_devices.hardware.profile.CAPABILITIES`; hardware
            without it is passed over.

        Returns
        -------
        str

        Raises
        ------
        tensor_ops.BackendError
            If no hardware here has what is required.

        Examples
        --------
        >>> HardwareDetector().get_optimal_backend(requires=["bfloat16", "fp88"])
        Traceback (most recent call last):
            ...
        tensor_ops.errors.ConfigError: 'fp88' is no capability; did you mean 'fp8'? ...
        """
        check_capability_names(requires)
        wanted = {requires} if isinstance(requires, str) else set(requires)
        for profile in self.detect_all():
            if wanted <= profile.capabilities:
                return profile.hardware_type.value
        lacks = (
            f"{each.hardware_type.value} lacks {', '.join(sorted(wanted - each.capabilities))}"
            for each in self.detect_all()
        )
        absent = (f"no {kind} ({reason})" for kind, reason in self.reasons.items())
        raise BackendError(
            f"no hardware here has {', '.join(sorted(wanted))}: {'; '.join([*lacks, *absent])}"
        )


def priority(profile: HardwareProfile) -> tuple[int, int]:
    """Return the level of hardware in the order of this module, and its place in the level."""
    return _level(profile), _ORDER.index(profile.hardware_type)


def _level(profile: HardwareProfile) -> int:
    kind = profile.hardware_type
    if kind is HardwareType.CPU:
        return 6
    if kind is HardwareType.NVIDIA:
        if profile.architecture in _BEST_NVIDIA:
            return 1
        return 3 if profile.compute_capability == (8, 0) else 5
    if kind is HardwareType.TPU:
        if profile.tpu_version in _NEW_TPUS:
            return 2
        return 5 if profile.tpu_version in _OLD_TPUS else 4
    return 5


def probe(kind: HardwareType, *device_id: int) -> HardwareProfile | str:
    """Return the facts of one kind of hardware, or why it cannot be used.

    Raises BackendError for a `device_id` that is not there, of NVIDIA, and nothing else.
    """
    try:
        return PROBES[kind](*device_id)
    except BackendError:
        raise
    except Exception as error:  # one driver that is broken must not hide other hardware
        return f"{type(error).__name__}: {error}"


def nvidia_profile(device_id: int = 0) -> HardwareProfile | str:
    """Return the facts of an NVIDIA GPU, or why there is none.

    Raises
    ------
    tensor_ops.BackendError
        If there are GPUs, but none of this number.
    """
    if torch.version.hip:
        return f"this PyTorch ({torch.__version__}) is built for ROCm"
    if not torch.version.cuda:
        return (
            f"this PyTorch ({torch.__version__}) is built without CUDA; "
            "https://pytorch.org/get-started has builds with it"
        )
    if not torch.cuda.is_available() or not torch.cuda.device_count():
        return "PyTorch finds no CUDA device; nvidia-smi shows whether the driver does"
    count = torch.cuda.device_count()
    if device_id >= count:
        raise BackendError(
            f"NVIDIAConfig.device_id is {device_id}, but there are {count} CUDA devices; expected "
            f"a number below {count} (CUDA_VISIBLE_DEVICES decides which they are)"
        )
    properties = torch.cuda.get_device_properties(device_id)
    capability = (properties.major, properties.minor)
    if not has_code_for(capability, built := torch.cuda.get_arch_list()):
        return (
            f"this PyTorch ({torch.__version__}) has no code for {properties.name} "
            f"(sm_{capability[0]}{capability[1]}), only {', '.join(built)}; install one that does"
        )
    return _profile(
        HardwareType.NVIDIA,
        properties.name,
        properties.total_memory,
        nvidia_capabilities(capability),
        count,
        f", CUDA {torch.version.cuda}",
        compute_capability=capability,
        architecture=nvidia_architecture(capability, properties.name),
        compute_units=properties.multi_processor_count,
    )


def has_code_for(capability: tuple[int, int], built: Collection[str]) -> bool:
    """Return whether a build runs on a GPU: binaries for its major version, or PTX to compile."""
    number = 10 * capability[0] + capability[1]
    for name in built:
        kind, _, digits = name.partition("_")
        own = int("".join(each for each in digits if each.isdigit()))
        if kind == "compute" and own <= number:
            return True
        # sm_90a and the like are for that very architecture
        exact = not digits.isdigit()
        if kind == "sm" and (own == number if exact else own <= number < own - own % 10 + 10):
            return True
    return not built


def _tpu() -> HardwareProfile | str:
    chosen = xla.chosen_device()
    chips = _chips()
    if not xla.is_installed():
        there = f"{chips} TPU chips are there, but " if chips else ""
        return f"{there}torch_xla is not installed; pip install torch_xla"
    if chosen not in (None, "TPU"):
        return f"PJRT_DEVICE={chosen} keeps torch_xla from the TPU"
    if chosen is None and not chips:
        # Not asked of torch_xla, which would set PJRT_DEVICE=CPU for this process.
        return "no TPU chip is on the PCI bus"
    return xla.why_not_importable() or of_torch_xla()


def of_torch_xla() -> HardwareProfile | str:
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr
    from torch_xla._internal import tpu

    if (kind := xr.device_type()) != "TPU":
        return f"torch_xla's device is {kind}"
    device = torch_xla.device()
    name = xm.xla_device_kind(device)
    return _profile(
        HardwareType.TPU,
        name,
        xm.get_memory_info(device)["bytes_limit"],
        {"xla", "bfloat16"},
        xr.addressable_runtime_device_count(),
        f", torch_xla {torch_xla.__version__}",
        tpu_version=tpu_version(name),
        host_count=int(tpu.num_tpu_workers()),
        slice_count=int(os.environ.get("MEGASCALE_NUM_SLICES") or 1),
    )


def _chips() -> int:
    """Return the number of TPU chips on the PCI bus."""
    return sum(
        _word(device / "vendor") == _GOOGLE and _word(device / "device") in _TPU_CHIPS
        for device in (PCI.iterdir() if PCI.is_dir() else ())
    )


def _word(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _amd() -> HardwareProfile | str:
    if not torch.version.hip:
        return f"this PyTorch ({torch.__version__}) is built without ROCm"
    if not torch.cuda.is_available() or not torch.cuda.device_count():
        return "PyTorch finds no ROCm device; rocminfo shows whether the driver does"
    properties = torch.cuda.get_device_properties(0)
    return _profile(
        HardwareType.AMD,
        properties.name,
        properties.total_memory,
        {*_ANYWHERE, "float64"},
        torch.cuda.device_count(),
        f", ROCm {torch.version.hip}",
        architecture=properties.gcnArchName.partition(":")[0],
        compute_units=properties.multi_processor_count,
    )


def _xpu() -> HardwareProfile | str:
    xpu = getattr(torch, "xpu", None)
    if xpu is None or not torch.xpu.is_available() or not torch.xpu.device_count():
        return "PyTorch finds no XPU; it is an Intel GPU with a PyTorch built for it"
    properties = torch.xpu.get_device_properties(0)
    has_fp64 = getattr(properties, "has_fp64", False)
    return _profile(
        HardwareType.XPU,
        properties.name,
        properties.total_memory,
        {*_ANYWHERE, "float64"} if has_fp64 else _ANYWHERE,
        torch.xpu.device_count(),
        compute_units=getattr(properties, "max_compute_units", None),
    )


def _mps() -> HardwareProfile | str:
    if not torch.backends.mps.is_built():
        return f"this PyTorch ({torch.__version__}) is built without MPS, which only Macs have"
    if not torch.backends.mps.is_available():
        return "PyTorch finds no MPS device; it needs macOS 14 and an Apple GPU"
    name = (sys.platform == "darwin" and machine.cpu_name()) or "Apple GPU"
    memory = torch.mps.recommended_max_memory() or allowed_memory()
    return _profile(HardwareType.MPS, name, memory, _ANYWHERE)


def _cpu() -> HardwareProfile:
    name, level = name_and_level()
    found = {*_ANYWHERE, "float64"} | ({"custom_kernels"} if level is not None else set())
    cores = machine.usable_cpus()
    return _profile(HardwareType.CPU, name, allowed_memory(), found, compute_units=cores, isa=level)


def _profile(
    kind: HardwareType,
    name: str,
    memory: int,
    capabilities: Collection[str],
    count: int = 1,
    driver: str = "",
    **facts: Any,
) -> HardwareProfile:
    """Return the facts of `count` devices of one kind, each with `memory` bytes."""
    several = {"multi_device"} if count > 1 else set()
    return HardwareProfile(
        kind,
        name,
        count,
        memory / GB,
        software=f"PyTorch {torch.__version__}{driver}",
        capabilities=frozenset(capabilities) | several,
        **facts,
    )


PROBES: dict[HardwareType, Callable[..., HardwareProfile | str]] = {
    HardwareType.NVIDIA: nvidia_profile,
    HardwareType.TPU: _tpu,
    HardwareType.AMD: _amd,
    HardwareType.XPU: _xpu,
    HardwareType.MPS: _mps,
    HardwareType.CPU: _cpu,
}
