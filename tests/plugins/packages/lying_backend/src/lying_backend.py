"""A backend that says that it is available, and then fails whatever it is asked."""

import sys

API_VERSION = 1


def probe():
    return {"available": True, "reason": None, "devices": ["none"]}


def info():
    sys.exit("info() ends the process")


def supports(op, dtype, device):
    raise OSError("supports() lost its device")


def silu(x, *, out=None):
    raise AssertionError("run although supports() failed")
