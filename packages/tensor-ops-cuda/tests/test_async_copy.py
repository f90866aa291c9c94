"""Asynchronous copies are there when they were waited for, and not before."""

import numpy as np
import pytest
from emulated_kernels import unsanitized

pytestmark = [unsanitized, pytest.mark.nightly]

SPOILT = 0xFFFFFFFF


def seen_of(kernels, *, changes):
    """Return what the lanes see of two groups before they wait, after one wait and after both."""
    source = np.arange(2 * 32 * 4, dtype=np.uint32)
    seen = kernels.array(np.zeros((3, *source.shape), np.uint32))
    kernels.run("copy_groups", kernels.array(source), seen, int(changes))
    return source.reshape(2, 32, 4), kernels.values(seen, 3 * source.size).reshape(3, 2, 32, 4)


def test_the_target_is_spoilt_until_it_is_waited_for(kernels):
    source, seen = seen_of(kernels, changes=False)
    assert (seen[0] == SPOILT).all()
    assert (seen[1, 0] == source[0]).all()
    assert (seen[1, 1] == SPOILT).all()
    assert (seen[2] == source).all()


@pytest.mark.parametrize(("wait", "last"), [(1, "source"), (2, "spoilt")])
def test_a_wait_for_copies_can_be_left_out(wait, last, kernels):
    kernels.emulatedLeaveOut(wait)
    source, seen = seen_of(kernels, changes=False)
    assert (seen[:2, 1] == SPOILT).all()
    assert (seen[2] == source).all() == (last == "source")
    assert (seen[1, 0] == SPOILT).all() == (wait == 1)


def test_a_source_that_changes_meanwhile_spoils_the_target(kernels):
    source, seen = seen_of(kernels, changes=True)
    assert (seen[2, 0] == SPOILT).all()
    assert (seen[2, 1] == source[1]).all()
