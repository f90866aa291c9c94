"""Errors of devices and of their compilers."""

__all__ = ["BuildError", "DeviceError", "first_line"]


class DeviceError(RuntimeError):
    """There is no OpenCL device to run on, or not the one that was asked for.

    Attributes
    ----------
    is_wrong_setting : bool
        Whether ``TENSOR_OPS_OPENCL_DEVICE`` is to blame, rather than the machine.
    """

    def __init__(self, message: str, *, is_wrong_setting: bool = False) -> None:
        super().__init__(message)
        self.is_wrong_setting = is_wrong_setting


class BuildError(RuntimeError):
    """A device's compiler refused a program; the message has device, options and log."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]
