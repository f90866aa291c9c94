"""The settings of the backends, under their documented import path."""

from tensor_ops_devices.hardware.config import *  # noqa: F403
