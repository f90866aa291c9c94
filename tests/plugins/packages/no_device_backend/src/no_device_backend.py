"""A backend that is installed and finds no device."""

API_VERSION = 1


def probe():
    return {"available": False, "reason": "the driver found no abacus", "devices": []}


def info():
    return {"display_name": "No device", "version": "1.2.3", "device_count": 0}


def supports(op, dtype, device):
    raise AssertionError("asked of a backend that is unavailable")


def silu(x, *, out=None):
    raise AssertionError("run on a backend that is unavailable")
