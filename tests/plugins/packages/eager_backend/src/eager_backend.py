"""A backend whose import already asks tensor_ops for the backend that it is."""

import numpy as np

import tensor_ops

API_VERSION = 1

ITSELF = tensor_ops.silu(np.ones(1), backend="eager")
