"""The device that host arrays are computed on: its context, and a queue for each thread."""

import os
import threading
from typing import Any

from tensor_ops_opencl import discovery, runtime
from tensor_ops_opencl.discovery import VARIABLE, Device
from tensor_ops_opencl.programs import Programs

__all__ = ["Session", "current"]


class Session:
    """A context on one device.

    Attributes
    ----------
    device : Device
    context : pyopencl.Context
    programs : Programs
    own : threading.local
        What belongs to one thread: its queue, and memory that it uses again.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.context = runtime.opencl().Context([device.handle])
        self.programs = Programs(self.context, device)
        self.own = threading.local()

    def queue(self) -> Any:
        """Return this thread's queue, which runs its commands in order."""
        try:
            return self.own.queue
        except AttributeError:
            self.own.queue = self.new_queue()
            return self.own.queue

    def new_queue(self) -> Any:
        """Return another queue on the device."""
        return runtime.opencl().CommandQueue(self.context, self.device.handle)


def current() -> Session:
    """Return the session of the chosen device, which the first call makes.

    Raises
    ------
    DeviceError
        If there is no such device.
    """
    runtime.opencl()  # refuses a forked child
    wanted = os.environ.get(VARIABLE, "")
    session = _sessions.get(wanted)
    if session is None:
        with _lock:
            session = _sessions.get(wanted)
            if session is None:
                session = _sessions[wanted] = Session(discovery.chosen(wanted))
    return session


_sessions: dict[str, Session] = {}
_lock = threading.Lock()
