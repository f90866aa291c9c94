"""A causal model of transformers, run by the decode engine: `tensor_ops_torch.decoder`."""
