"""Every device of every platform, and the choice of one."""

import os
from dataclasses import dataclass, field
from typing import Any

from tensor_ops_opencl import compiler, runtime
from tensor_ops_opencl.errors import DeviceError

__all__ = ["VARIABLE", "Device", "chosen", "devices", "of_context"]

#: Chooses the device: ``platform:device``, each an index or a part of the name, or ``device`` only.
VARIABLE = "TENSOR_OPS_OPENCL_DEVICE"

_KINDS = ("gpu", "accelerator", "cpu", "custom")


@dataclass(frozen=True, eq=False)
class Device:
    """An OpenCL device.

    Attributes
    ----------
    index : str
        ``platform:device``, as ``TENSOR_OPS_OPENCL_DEVICE`` takes it.
    name, platform, vendor, version, driver : str
    kind : {"gpu", "accelerator", "cpu", "custom"}
    compute_units : int
    clock : int
        MHz.
    max_memory, max_shared_memory : int
        Bytes of global memory, and of local memory of a work-group.
    max_work_group_size : int
    cache_size : int
        Bytes of the last cache before global memory.
    has_float64 : bool
    shares_memory : bool
        Whether it works on the host's own memory.
    """

    index: str
    name: str
    platform: str
    vendor: str
    version: str
    driver: str
    kind: str
    compute_units: int
    clock: int
    max_memory: int
    max_shared_memory: int
    max_work_group_size: int
    cache_size: int
    has_float64: bool
    shares_memory: bool
    rounds_division: bool = field(repr=False)
    handle: Any = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    def facts(self) -> dict[str, Any]:
        """Return what the attributes say, as plain values."""
        return {name: getattr(self, name) for name in self.__match_args__ if name != "handle"}

    @property
    def strength(self) -> tuple[int, int, int]:
        """What decides between devices: the kind, then units times clock, then memory."""
        return (
            -_KINDS.index(self.kind),
            self.compute_units * max(self.clock, 1),
            self.max_memory,
        )


def devices() -> list[Device]:
    """Return every device of every platform, by platform.

    Returns
    -------
    list of Device

    Raises
    ------
    DeviceError
        If there is no platform; the message says what to install.

    Examples
    --------
    >>> import tensor_ops_opencl
    >>> for device in tensor_ops_opencl.devices():
    ...     assert device.compute_units >= 1
    """
    cl = runtime.opencl()
    found = []
    for number, platform in enumerate(runtime.platforms()):
        try:
            handles = platform.get_devices()
        except cl.Error:  # a platform without a device is no reason to have none at all
            continue
        found += [_described(cl, f"{number}:{k}", handle) for k, handle in enumerate(handles)]
    return found


def chosen(wanted: str | None = None) -> Device:
    """Return the device to use: the one that is wanted, else the strongest.

    Parameters
    ----------
    wanted : str, optional
        ``platform:device`` or ``device``, each by index or by a part of the name; by default the
        value of ``TENSOR_OPS_OPENCL_DEVICE``.

    Raises
    ------
    DeviceError
        If there is none, or none or more than one that fits; the message lists what there is. If
        its compiler does not know the CPU that it runs on.
    """
    found = devices()
    if not found:
        raise DeviceError(
            "the OpenCL platforms have no device; check the driver, or its rights: PoCL has none "
            "where it cannot write its cache, POCL_CACHE_DIR"
        )
    wanted = os.environ.get(VARIABLE, "") if wanted is None else wanted
    if not wanted.strip():
        return _strongest(found)
    fitting = [device for device in found if _fits(wanted, device)]
    if not fitting:
        raise DeviceError(f"{VARIABLE}={wanted!r} fits no device; there are {_listed(found)}")
    if len(fitting) > 1:
        raise DeviceError(
            f"{VARIABLE}={wanted!r} fits more than one device: {_listed(fitting)}; "
            "give an index, as in " + fitting[0].index
        )
    problem = compiler.problem_with(fitting[0])
    if problem is not None:
        raise DeviceError(
            f"{VARIABLE}={wanted!r}: {fitting[0]} compiles no kernel: {problem}; there are "
            f"{_listed(found)}"
        )
    return fitting[0]


def of_context(handle: Any) -> Device:
    """Return the description of a device that somebody else's queue runs on."""
    return _described(runtime.opencl(), "", handle)


def _strongest(found: list[Device]) -> Device:
    """Return the strongest device whose compiler works."""
    problems = []
    for device in sorted(found, key=lambda device: device.strength, reverse=True):
        problem = compiler.problem_with(device)
        if problem is None:
            return device
        problems.append(f"{device.index} = {device}: {problem}")
    raise DeviceError(
        f"no OpenCL device compiles a kernel: {'; '.join(problems)}; a driver that does not know "
        "this CPU is older than the CPU: install a newer one, or Intel's from PyPI, which runs on "
        "other CPUs too: pip install intel-opencl-rt, with OCL_ICD_VENDORS naming its .icd file"
    )


def _fits(wanted: str, device: Device) -> bool:
    of_platform, colon, of_device = wanted.rpartition(":")
    platform_index, _, device_index = device.index.partition(":")
    return (not colon or _names(of_platform, platform_index, device.platform)) and _names(
        of_device, device_index, device.name
    )


def _names(word: str, index: str, name: str) -> bool:
    word = word.strip()
    return word == index if word.isdigit() else word.lower() in name.lower()


def _listed(found: list[Device]) -> str:
    return ", ".join(f"{device.index} = {device}" for device in found)


def _described(cl: Any, index: str, handle: Any) -> Device:
    kinds = cl.device_type
    bits = {kinds.GPU: "gpu", kinds.ACCELERATOR: "accelerator", kinds.CPU: "cpu"}
    kind = next((name for bit, name in bits.items() if handle.type & bit), "custom")
    fp = cl.device_fp_config
    extensions = handle.extensions.split()
    return Device(
        index=index,
        name=handle.name.strip(),
        platform=handle.platform.name.strip(),
        vendor=handle.vendor.strip(),
        version=handle.version.strip(),
        driver=handle.driver_version.strip(),
        kind=kind,
        compute_units=handle.max_compute_units,
        clock=handle.max_clock_frequency,
        max_memory=handle.global_mem_size,
        max_shared_memory=handle.local_mem_size,
        max_work_group_size=handle.max_work_group_size,
        cache_size=handle.global_mem_cache_size,
        has_float64="cl_khr_fp64" in extensions,
        shares_memory=bool(handle.host_unified_memory),
        rounds_division=bool(handle.single_fp_config & fp.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        handle=handle,
    )
