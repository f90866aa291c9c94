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


def test_which_threads_are_started():
    run("""
tensor_ops_cpp.set_num_threads(1)
assert all(is_right() for _ in range(20)) and threads_of_process() == before
tensor_ops_cpp.set_num_threads(2)
torch.set_num_threads(1)
assert all(is_right() for _ in range(20)) and threads_of_process() <= before
torch.set_num_threads(2)
torch.nn.functional.relu(x)
assert is_right() and threads_of_process() == before
tensor_ops_cpp.silu(x.numpy())  # has no part in PyTorch's threads
assert threads_of_process() == before + 1
""")


def test_numbers_of_threads_and_pauses_change_no_bits():
    run("""
for threads in (3, 2, 4, 1, 2):
    torch.set_num_threads(threads)
    for pause in (0, 0.05, 0):
        time.sleep(pause)
        torch.nn.functional.relu(x)
        assert is_right() and is_right()
for threads in (1, 2, 5):
    y = tensor_ops_cpp.silu(x, num_threads=threads)
    assert y.numpy().tobytes() == expected

right = []
def call():
    torch.set_num_threads(2)
    right.extend(is_right() for _ in range(20))
callers = [threading.Thread(target=call) for _ in range(4)]
for each in callers: each.start()
for each in callers: each.join()
assert right == [True] * 80
""")


def test_a_forked_child_has_threads_of_its_own():
    run("""
assert is_right()
child = os.fork()
if child == 0:
    torch.set_num_threads(1)  # as workers of a DataLoader do
    before = threads_of_process()
    keeps_to_one = is_right() and threads_of_process() == before
    torch.set_num_threads(2)
    os._exit(0 if keeps_to_one and is_right() and is_right() else 1)
assert os.waitpid(child, 0)[1] == 0 and is_right()
""")
