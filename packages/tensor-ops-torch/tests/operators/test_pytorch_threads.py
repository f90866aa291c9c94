"""Calls on tensors of PyTorch, which share PyTorch's threads while these spin."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only on Linux are PyTorch's threads looked for"
)

HEAD = """\
import os, sys, threading, time
import torch
import tensor_ops_cpp
import tensor_ops_torch

def threads_of_process():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(2)
torch.set_grad_enabled(False)
x = torch.linspace(-3, 3, 1 << 20)
torch.nn.functional.relu(x)  # starts PyTorch's threads
expected = tensor_ops_cpp.silu(x.numpy(), num_threads=1).tobytes()
before = threads_of_process()

def is_right():
    return tensor_ops_torch.silu(x).numpy().tobytes() == expected
"""


def run(code):
    """Run a program of its own, since the threads that a process has started stay."""
    command = [sys.executable, "-c", HEAD + code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_call_starts_no_threads_beside_them():
    run("assert is_right() and threads_of_process() == before\n")


def test_an_array_of_numpy_does_not_use_them():
    run(
        "tensor_ops_cpp.set_num_threads(2)\n"
        "tensor_ops_cpp.silu(x.numpy())\n"
        "assert threads_of_process() == before + 1\n"
    )


def test_torch_set_num_threads_limits_calls_on_tensors():
    run(
        "tensor_ops_cpp.set_num_threads(2)\n"
        "torch.set_num_threads(1)\n"
        "assert all(is_right() for _ in range(20)) and threads_of_process() <= before\n"
    )


def test_set_num_threads_limits_them():
    run(
        "tensor_ops_cpp.set_num_threads(1)\n"
        "assert all(is_right() for _ in range(20)) and threads_of_process() == before\n"
    )


def test_other_numbers_of_threads_and_pauses_change_no_bits():
    run(
        "for threads in (3, 2, 4, 1, 2):\n"
        "    torch.set_num_threads(threads)\n"
        "    for pause in (0, 0.05, 0):\n"
        "        time.sleep(pause)\n"
        "        torch.nn.functional.relu(x)\n"
        "        assert is_right() and is_right()\n"
    )


def test_a_number_of_threads_in_the_call_may_be_larger_than_theirs():
    run(
        "assert is_right()\n"
        "for threads in (1, 2, 5):\n"
        "    y = tensor_ops_cpp.silu(x, num_threads=threads)\n"
        "    assert y.numpy().tobytes() == expected\n"
    )


def test_several_threads_call_at_once():
    run(
        "right = []\n"
        "def call():\n"
        "    torch.set_num_threads(2)\n"
        "    right.extend(is_right() for _ in range(20))\n"
        "callers = [threading.Thread(target=call) for _ in range(4)]\n"
        "for each in callers: each.start()\n"
        "for each in callers: each.join()\n"
        "assert right == [True] * 80\n"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    run(
        "assert is_right()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if is_right() and is_right() else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0 and is_right()\n"
    )
