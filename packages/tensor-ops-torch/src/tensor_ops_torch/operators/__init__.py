"""How the ops of tensor_ops become PyTorch operators; what each op needs for it is in `ops`."""
