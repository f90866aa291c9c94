"""The documented import paths `core.config` and `core.hardware_detector` of what `hardware` has."""
