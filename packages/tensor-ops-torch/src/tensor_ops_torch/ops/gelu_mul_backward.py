"""Gradients of GELU of a gate, times another tensor.

>>> import torch
>>> import tensor_ops_torch
>>> gate, up = torch.tensor([[-1.0, 1.0], [2.0, 2.0]])
>>> tensor_ops_torch.gelu_mul_backward(torch.ones(2), gate, up, "none")
(tensor([-0.1666,  2.1666]), tensor([-0.1587,  0.8413]))
"""

from tensor_ops_torch.operators import gated
from tensor_ops_torch.ops import gelu, gelu_backward, gelu_mul

composed, precise, gradients, tangents = gated.formulas_of_gradients(gelu_mul, gelu, gelu_backward)
