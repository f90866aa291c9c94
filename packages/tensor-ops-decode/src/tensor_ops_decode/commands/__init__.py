"""The commands of tensor-ops that open models."""
