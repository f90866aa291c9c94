"""GELU of a gate, times another tensor (GeGLU).

>>> import torch
>>> import tensor_ops_torch
>>> tensor_ops_torch.gelu_mul(torch.tensor([-1.0, 1.0]), torch.tensor([2.0, 2.0]), "none")
tensor([-0.3173,  1.6827])
"""

from tensor_ops_torch.operators import gated
from tensor_ops_torch.ops import gelu

composed, precise, gradients, tangents = gated.formulas_of(gelu, "gelu_mul_backward")
