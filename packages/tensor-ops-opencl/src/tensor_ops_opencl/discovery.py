"""Every device of every platform, and the choice of one."""

import os
from dataclasses import dataclass, field
from typing import Any

from tensor_ops_opencl import compiler, drivers, runtime
from tensor_ops_opencl.errors import DeviceError

__all__ = ["VARIABLE", "Device", "chosen", "devices", "of_context"]

#: Chooses the device: ``platform:device``, each an index or a part of the name, or ``device`` only,
#: which may also be a kind.
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
        """What decides between devices: the kind, then units times clock, then memory.

        Between CPUs it is the driver, then the units: most often they are one CPU, whose clock and
        memory each driver makes out in its own way. PoCL goes first where it compiles: which of the
        drivers is faster depends on op and size.
        """
        kind = -_KINDS.index(self.kind)
        if self.kind == "cpu":
            return kind, int(self.platform == drivers.POCL), self.compute_units
        return kind, self.compute_units * max(self.clock, 1), self.max_memory


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
        value of ``TENSOR_OPS_OPENCL_DEVICE``. ``device`` may also be a kind, which is then the
        strongest device of that kind; a kind goes before a name.

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
        return _strongest(found, found)
    of_platform, of_device = _parsed(wanted, found)
    fitting = [device for device in found if _fits(of_platform, of_device, device)]
    if not fitting:
        raise _wrong_setting(wanted, "fits no device", found)
    if of_device in _KINDS:
        return _strongest(fitting, found)
    if len(fitting) > 1:
        raise _wrong_setting(wanted, "fits more than one device", fitting)
    problem = compiler.problem_with(fitting[0])
    if problem is not None:
        raise DeviceError(
            f"{VARIABLE}={wanted!r}: {fitting[0]} compiles no kernel: {problem}; there are "
            f"{_listed(found)}; {_another_driver(found)}"
        )
    return fitting[0]


def of_context(handle: Any) -> Device:
    """Return the description of a device that somebody else's queue runs on."""
    cl = runtime.opencl()
    runtime.note_use()
    return _described(cl, "", handle)


def _strongest(fitting: list[Device], found: list[Device]) -> Device:
    """Return the strongest of the devices that fit whose compiler works."""
    problems = []
    for device in sorted(fitting, key=lambda device: device.strength, reverse=True):
        problem = compiler.problem_with(device)
        if problem is None:
            return device
        problems.append(f"{device.index} = {device}: {problem}")
    raise DeviceError(
        f"no OpenCL device compiles a kernel: {'; '.join(problems)}; {_another_driver(found)}"
    )


def _another_driver(found: list[Device]) -> str:
    tried = {device.platform for device in found}
    return (
        "a driver that does not know this CPU is older than the CPU, and another is needed: "
        f"{drivers.for_cpu(tried)}"
    )


def _parsed(wanted: str, found: list[Device]) -> tuple[str, str]:
    """Return the platform, empty for any, and the device of a setting."""
    words = [word.strip() for word in wanted.lower().split(":")]
    if len(words) > 2 or not all(words):
        raise _wrong_setting(wanted, "is neither platform:device nor device", found)
    return ("", *words)[-2], words[-1]


def _wrong_setting(wanted: str, problem: str, listed: list[Device]) -> DeviceError:
    return DeviceError(
        f"{VARIABLE}={wanted!r} {problem}; there are {_listed(listed)}; set it to an index, as in "
        f"{listed[0].index}, to a part of a name, or to a kind: {', '.join(_KINDS[:3])}",
        is_wrong_setting=True,
    )


def _fits(of_platform: str, of_device: str, device: Device) -> bool:
    platform_index, _, device_index = device.index.partition(":")
    if not _names(of_platform, platform_index, device.platform):
        return False
    if of_device in _KINDS:
        return device.kind == of_device
    return _names(of_device, device_index, device.name)


def _names(word: str, index: str, name: str) -> bool:
    return word == index if word.isdigit() else word in name.lower()


def _listed(found: list[Device]) -> str:
    return ", ".join(f"{device.index} = {device}, {device.kind}" for device in found)


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
