"""SiLU of a gate, times another tensor (SwiGLU).

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.silu_mul(torch.tensor([-1.0, 1.0]), torch.tensor([2.0, 2.0]))
tensor([-0.5379,  1.4621])
"""

from tensor_ops_torch.operators import gated
from tensor_ops_torch.ops import silu

composed, precise, gradients, tangents = gated.formulas_of(silu, "silu_mul_backward")
