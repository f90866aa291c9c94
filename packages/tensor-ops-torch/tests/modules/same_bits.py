"""Comparing results bit by bit, in each grad mode."""

import torch

MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x):
    # The sign of a NaN means nothing: of two operands that are NaN an instruction returns either,
    # and compilers choose their order.
    one_nan = x.detach().masked_fill(x.isnan(), torch.nan)
    return one_nan.view(_INTEGERS[x.itemsize])


def assert_same(found, wanted, what):
    assert found.dtype == wanted.dtype, what
    assert found.shape == wanted.shape, what
    # Nearly always NaNs are the same as well, which is seen in a fraction of the time.
    integers = _INTEGERS[found.itemsize]
    if not torch.equal(found.detach().view(integers), wanted.detach().view(integers)):
        assert torch.equal(bits(found), bits(wanted)), what
