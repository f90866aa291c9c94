"""Gradients of SiLU of a gate, times another tensor.

>>> import torch
>>> import tensor_ops_torch
>>> gate, up = torch.tensor([[-1.0, 1.0], [2.0, 2.0]])
>>> tensor_ops_torch.silu_mul_backward(torch.ones(2), gate, up)
(tensor([0.1447, 1.8553]), tensor([-0.2689,  0.7311]))
"""

from tensor_ops_torch.operators import gated
from tensor_ops_torch.ops import silu, silu_backward, silu_mul

composed, precise, gradients, tangents = gated.formulas_of_gradients(silu_mul, silu, silu_backward)
