"""The ops of tensor_ops as PyTorch operators; what each op needs for it is in `ops`."""
