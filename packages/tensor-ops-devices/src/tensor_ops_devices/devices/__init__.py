"""Devices, mixed precision and providers of ONNX Runtime, chosen by the name of a backend."""
