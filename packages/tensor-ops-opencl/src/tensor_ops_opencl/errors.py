"""What can go wrong between here and a device."""

__all__ = ["BuildError", "DeviceError"]


class DeviceError(RuntimeError):
    """There is no OpenCL device to run on, or not the one that was asked for."""


class BuildError(RuntimeError):
    """A device's compiler refused a program; the message has device, options and log."""
