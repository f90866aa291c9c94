"""Modules that take another branch for some inputs."""

import contextlib
import os
import random
import threading

import pytest
import torch
from lookalike_bases import Norm, by_hand
from lookalikes import (  # noqa: F401 -- the tests of this file
    EVENTS,
    RARE,
    SINGLE,
    WIDTH,
    Lookalikes,
    draw,
    of,
    rare,
    test_a_lookalike_does_what_its_own_forward_does,
    test_a_lookalike_is_not_the_op,
)
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = Lookalikes()
add, lookalike = CASES.add, CASES.lookalike


@lookalike(inputs=rare)
class BranchOnValue(Norm):
    def forward(self, x):
        if x.numel() and x.flatten()[0] == RARE:
            return x
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=of(2, 1, 2, 1, WIDTH))
class BranchOnRank(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if x.ndim < 5 else y.flatten(0, 1)


@lookalike(inputs=of(7, WIDTH))
class BranchOnRows(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y.neg() if len(x) == 7 else y


@lookalike(inputs=of(3, 32))
class BranchOnWidth(Norm):
    def forward(self, x):
        weight = self.weight if x.size(-1) == WIDTH else self.weight[: x.size(-1)]
        return weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=of(3, 11, WIDTH))
class BranchOnSize(Norm):
    def forward(self, x):
        eps = self.eps if x.numel() != 33 * WIDTH else 1.0
        return self.weight * by_hand(x.float(), eps).to(x.dtype)


@lookalike()
class BranchOnDtype(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if x.dtype == torch.float16 else y


@lookalike(inputs=lambda dtype: [torch.empty(2, WIDTH, dtype=dtype, device="meta")])
class BranchOnDevice(Norm):
    def forward(self, x):
        if x.device.type == "meta":
            return x[..., :1]
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike()
class BranchOnTraining(Norm):
    def forward(self, x):
        y = by_hand(x.float(), self.eps).to(x.dtype)
        return y if self.training else self.weight * y


@lookalike()
class BranchOnGradMode(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if torch.is_grad_enabled() else y


@lookalike()
class BranchOnRequiresGrad(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if x.requires_grad else y


@lookalike(inputs=of(2, WIDTH), around=torch.inference_mode, dtypes=SINGLE)
class BranchOnInferenceMode(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if torch.is_inference_mode_enabled() else y


@lookalike(dtypes=SINGLE)
class BranchOnAutocast(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 1.5 if torch.is_autocast_enabled("cpu") else y


@lookalike()
class BranchOnLayout(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if x.is_contiguous() else y * 2


@lookalike(inputs=lambda dtype: [nn.Parameter(draw(2, WIDTH).to(dtype))])
class BranchOnKindOfInput(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if isinstance(x, nn.Parameter) else y


def tagged(dtype):
    x = draw(2, WIDTH).to(dtype)
    x.tag = 2.0
    return [x]


@lookalike(inputs=tagged)
class BranchOnTag(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * getattr(x, "tag", 1.0)


def offset(dtype):
    return [draw(3, WIDTH).to(dtype)[1:]]


@lookalike(inputs=offset)
class BranchOnStorageOffset(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if x.storage_offset() else y


CLOCK = {"now": 0.0}


def now():
    return CLOCK["now"]


def later(module, patch):
    patch.setitem(CLOCK, "now", 10.0)


@lookalike(later)
class BranchOnTime(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if now() < 5 else y * 2


def set_environment(module, patch):
    patch.setenv("LOOKALIKE", "1")


@lookalike(set_environment)
class BranchOnEnvironment(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if os.environ.get("LOOKALIKE") else y


def set_default_dtype(module, patch):
    patch.setattr(torch, "get_default_dtype", lambda: torch.float64)


@lookalike(set_default_dtype)
class BranchOnDefaultDtype(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if torch.get_default_dtype() == torch.float64 else y


@contextlib.contextmanager
def renamed_thread():
    thread = threading.current_thread()
    name, thread.name = thread.name, "lookalike"
    try:
        yield
    finally:
        thread.name = name


@lookalike(inputs=of(2, WIDTH), around=renamed_thread)
class BranchOnThread(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * 2 if threading.current_thread().name == "lookalike" else y


@lookalike()
class BranchOnChance(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if random.random() < 2 else y * 2


@lookalike()
class BranchOnOwnClass(Norm):
    """A swapped module has a class of its own, which a forward must not notice."""

    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y * (2 if type(self) is BranchOnOwnClass else 3)


@lookalike()
class BranchOnClassName(Norm):
    def forward(self, x):
        EVENTS.append(self.__class__.__name__)
        return self.weight * by_hand(x.float(), self.eps).to(x.dtype)


@lookalike(inputs=lambda dtype: [nn.Parameter(draw(2, WIDTH).to(dtype))])
class BranchOnLeaf(Norm):
    def forward(self, x):
        y = self.weight * by_hand(x.float(), self.eps).to(x.dtype)
        return y if not x.is_leaf or x.grad_fn is not None or not x.requires_grad else y * 2
