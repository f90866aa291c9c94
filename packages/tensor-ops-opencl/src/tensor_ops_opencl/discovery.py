"""Every device of every platform, and the choice of one."""

import os

from tensor_ops_opencl import compiler, drivers, runtime
from tensor_ops_opencl.device import KINDS, Device, describe
from tensor_ops_opencl.errors import DeviceError

__all__ = ["VARIABLE", "chosen", "devices"]

#: Chooses the device: ``platform:device``, each an index or a part of the name, or ``device`` only,
#: which may also be a kind.
VARIABLE = "TENSOR_OPS_OPENCL_DEVICE"


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
        found += [describe(handle, f"{number}:{k}") for k, handle in enumerate(handles)]
    return found


def chosen(wanted: str | None = None) -> Device:
    """Return the device to use: the one that is wanted, else the strongest.

    `wanted` is ``platform:device`` or ``device``, each by index or by a part of the name; without
    it, the value of ``TENSOR_OPS_OPENCL_DEVICE``. ``device`` may also be a kind, which is then the
    strongest device of that kind; a kind goes before a name.

    Raises DeviceError if there is none, or none or more than one that fits, listing what there is;
    and if its compiler does not know the CPU that it runs on.
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
    if of_device in KINDS:
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
        f"{listed[0].index}, to a part of a name, or to a kind: {', '.join(KINDS[:3])}",
        is_wrong_setting=True,
    )


def _fits(of_platform: str, of_device: str, device: Device) -> bool:
    platform_index, _, device_index = device.index.partition(":")
    if not _names(of_platform, platform_index, device.platform):
        return False
    if of_device in KINDS:
        return device.kind == of_device
    return _names(of_device, device_index, device.name)


def _names(word: str, index: str, name: str) -> bool:
    return word == index if word.isdigit() else word in name.lower()


def _listed(found: list[Device]) -> str:
    return ", ".join(f"{device.index} = {device}, {device.kind}" for device in found)
