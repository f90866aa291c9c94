"""Comparing results bit by bit, in each grad mode."""

import torch

MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x):
    return x.detach().view(_INTEGERS[x.itemsize])


def assert_same(found, wanted, what):
    assert found.dtype == wanted.dtype, what
    assert found.shape == wanted.shape, what
    assert torch.equal(bits(found), bits(wanted)), what
