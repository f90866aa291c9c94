"""The context of the device that host arrays are computed on, and a queue for each thread."""

import os
import threading
from typing import Any

from tensor_ops_opencl import discovery, runtime
from tensor_ops_opencl.device import Device
from tensor_ops_opencl.discovery import VARIABLE
from tensor_ops_opencl.programs import Programs

__all__ = ["DeviceContext", "current", "by_setting"]


class DeviceContext:
    """A context on one device, with the handle that pyopencl has for it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.handle = runtime.opencl().Context([device.handle])
        self.programs = Programs(self.handle, device)
        self.own = threading.local()  # a thread's queue, and memory that it uses again

    def queue(self) -> Any:
        """Return this thread's queue, which runs its commands in order."""
        try:
            return self.own.queue
        except AttributeError:
            self.own.queue = self.new_queue()
            return self.own.queue

    def new_queue(self) -> Any:
        """Return another queue on the device."""
        return runtime.opencl().CommandQueue(self.handle, self.device.handle)


def current() -> DeviceContext:
    """Return the context of the device for host arrays, which the first call makes.

    Raises DeviceError if there is no such device.
    """
    runtime.opencl()  # refuses a forked child
    wanted = os.environ.get(VARIABLE, "")
    context = by_setting.get(wanted)
    if context is None:
        with _lock:
            context = by_setting.get(wanted)
            if context is None:
                context = by_setting[wanted] = DeviceContext(discovery.chosen(wanted))
    return context


by_setting: dict[str, DeviceContext] = {}
_lock = threading.Lock()
