"""The facts of an OpenCL device."""

from dataclasses import dataclass, field
from typing import Any

from tensor_ops_opencl import drivers, runtime

__all__ = ["KINDS", "Device", "describe"]

#: The kinds of device in the order of preference.
KINDS = ("gpu", "accelerator", "cpu", "custom")


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
        """The order of devices: by kind, then by units times clock, then by memory.

        Between CPUs it is the driver, then the units: most often they are one CPU, whose clock and
        memory each driver makes out in its own way. PoCL goes first where it compiles: which of the
        drivers is faster depends on op and size.
        """
        kind = -KINDS.index(self.kind)
        if self.kind == "cpu":
            return kind, int(self.platform == drivers.POCL), self.compute_units
        return kind, self.compute_units * max(self.clock, 1), self.max_memory


def describe(handle: Any, index: str = "") -> Device:
    """Return the description of a device of pyopencl; `index` is its place in the list of all."""
    cl = runtime.opencl()
    kinds = cl.device_type
    names = {kinds.GPU: "gpu", kinds.ACCELERATOR: "accelerator", kinds.CPU: "cpu"}
    kind = next((name for bit, name in names.items() if handle.type & bit), "custom")
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
