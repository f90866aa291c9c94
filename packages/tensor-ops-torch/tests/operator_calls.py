"""Arguments of every operator, made from what tensor_ops says of its op."""

import torch

from tensor_ops.ops import OPS
from tensor_ops.samples import Draw, arguments


def positional(name, shape):
    """Return float64 tensors that ask for gradients, and options, in the operator's order."""
    op = OPS[name]
    arrays = arguments(op, shape, Draw("float64", name))
    found = []
    for argument, kind in op.kinds.items():
        if argument in arrays:
            found.append(torch.from_numpy(arrays[argument]).requires_grad_())
        elif kind.role == "choice":
            found.append(kind.choices[-1])
        elif kind.role == "real" and kind.minimum < 0:
            found.append(0.7)
        else:  # what follows keeps its default
            break
    return tuple(found)
