"""Each wait of the kernel of decode steps can be left out, upon which its results are wrong."""

import pytest
from emulated_kernels import Order
from random_llama import Llama, answers
from wait_names import WAITS

import tensor_ops_cuda

pytestmark = pytest.mark.usefixtures("device")

# Warps share tiles, matrices have several panels, blocks several rounds, and queries all warps.
LLAMA = Llama("q4_0", layers=1, hidden=640, kv_heads=1, head_size=64, intermediate=2176)
PROMPTS = ([5, 6], [1, 2])


def found(runtime, order=Order.RANDOM, seed=1, without=0):
    """Return what follows two prompts, on three blocks; what went wrong if that is an error."""
    program, tensors = LLAMA.program()
    runtime.emulatedSetOrder(order, seed)
    runtime.emulatedLeaveOut(without)
    try:
        executable = tensor_ops_cuda.compile_program(program.to_json(), tensors, num_workers=3)
        return [
            (tokens, logits.tobytes())
            for tokens, logits in answers(executable, PROMPTS, num_steps=2)
        ]
    except (RuntimeError, ValueError) as error:
        return str(error)
    finally:
        runtime.emulatedLeaveOut(0)
        runtime.emulatedForgetFailure()
        runtime.emulatedSetOrder(Order.RANDOM, 1)


def test_all_waits_are_known():
    assert len(WAITS) == 17


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.sampled(3, "wait")
def test_without_a_wait_results_are_wrong(wait, runtime):
    right = found(runtime)
    assert isinstance(right, list)
    orders = ((order, seed) for seed in (1, 2, 3) for order in (Order.RANDOM, Order.WARP_BEHIND))
    number = 1 + WAITS.index(wait)
    assert any(found(runtime, *order, without=number) != right for order in orders)
