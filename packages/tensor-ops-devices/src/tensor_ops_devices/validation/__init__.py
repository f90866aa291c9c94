"""Checks of a model and the settings for a kind of hardware: `unified_validator`."""
