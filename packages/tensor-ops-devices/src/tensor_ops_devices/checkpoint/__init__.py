"""Checkpoints that any backend loads, whichever has saved them."""

from tensor_ops_devices.checkpoint.files import load_checkpoint, save_checkpoint

__all__ = ["load_checkpoint", "save_checkpoint"]
