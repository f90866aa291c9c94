"""The hardware detector, under its documented import path."""

from tensor_ops_devices.hardware.detector import *  # noqa: F403
