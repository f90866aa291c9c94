"""The documented import paths `core.config` and `core.hardware_detector` of tensor_ops_devices."""
