"""Each wait of a kernel can be left out, upon which the kernel is wrong."""

import ctypes

import numpy as np
import pytest
from emulated import CudaError
from emulated_kernels import Order, unsanitized

pytestmark = unsanitized

COLUMNS, LAYERS = 256, 3
# The waits of programs/layers_by_rings.h, whose numbers begin at 1.
WAITS = (
    *("prepared", "copied", "slot read", "joined", "parts read"),
    *("block has written", "release", "all have arrived", "acquire", "block may read"),
    "arrival",
)


class Layers(ctypes.Structure):
    """As the kernel has it."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("counter", ctypes.c_void_p),
        ("layers", ctypes.c_int),
    )


def truncated_remainder(values, divisor):
    """Return what % is in C++."""
    return np.fmod(values, divisor).astype(np.int32)


def run_layers(kernels, blocks, rng):
    """Return what the kernel computes, and what is right."""
    weights = rng.integers(-8, 9, (LAYERS, COLUMNS, COLUMNS), np.int32)
    x = np.full((2, COLUMNS), -1, np.int32)
    x[0] = rng.integers(-999, 1000, COLUMNS)
    right = x.copy()
    for layer in range(LAYERS):
        right[1 - layer % 2] = truncated_remainder(weights[layer] @ right[layer % 2], 1000)
    on_device = [kernels.array(each) for each in (weights, x, np.zeros(1, np.uint32))]
    kernels.run("layers", blocks, ctypes.byref(Layers(*on_device, LAYERS)))
    found = kernels.values(on_device[1], x.size, np.int32).reshape(x.shape)
    for address in on_device:
        kernels.cudaFree(address)
    return found, right


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("blocks", [1, 3])
def test_with_all_waits_the_kernel_is_right(blocks, order, kernels, rng):
    kernels.emulatedSetOrder(order, 7)
    found, right = run_layers(kernels, blocks, rng)
    assert (found == right).all()


def is_wrong(kernels, rng):
    """Return whether the kernel hangs or computes something else than what is right."""
    try:
        found, right = run_layers(kernels, 3, rng)
    except CudaError as error:
        if "wait" not in str(error):
            raise
        return True
    return (found != right).any()


@pytest.mark.parametrize("wait", range(1, len(WAITS) + 1), ids=lambda wait: WAITS[wait - 1])
def test_a_wait_that_is_left_out_is_missed(wait, kernels, rng):
    kernels.emulatedLeaveOut(wait)
    for order in (Order.RANDOM, Order.WARP_BEHIND):
        for seed in range(8):
            kernels.emulatedSetOrder(order, seed)
            if is_wrong(kernels, rng):
                return
    pytest.fail(f"the kernel does not need wait {wait}")
