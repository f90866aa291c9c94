"""Whether a model and the settings fit a kind of hardware: `unified_validator`."""
