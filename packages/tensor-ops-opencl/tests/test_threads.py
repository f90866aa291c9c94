"""Threads, each with a queue and kernels of its own, and children of processes that used OpenCL."""

import os
import threading

import numpy as np
import pytest

import tensor_ops_opencl

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
USE = "import numpy as np, os, tensor_ops_opencl as t\nx = np.ones(100, np.float32)\n"


def test_threads_that_start_together_build_once(device, use_device, monkeypatch):
    here = use_device()
    built = []
    build = here.programs._build

    def counting(op, options):
        built.append(op)
        return build(op, options)

    monkeypatch.setattr(here.programs, "_build", counting)
    x = np.linspace(-4, 4, 1000, dtype=np.float32)
    start = threading.Barrier(8)
    results = []

    def work():
        start.wait()
        results.append(tensor_ops_opencl.gelu(x))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == ["gelu"]
    assert len(results) == 8
    assert all((result == results[0]).all() for result in results)


@needs_fork
@pytest.mark.parametrize("used", ["t.silu(x)", "t.probe()"])
def test_a_child_is_told_that_it_cannot_use_opencl(python, device, used):
    code = USE + (
        f"{used}\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        t.silu(x)\n"
        "    except t.DeviceError as error:\n"
        "        print(error, t.probe()['available'], flush=True)\n"
        "        os._exit(3)\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), t.silu(x)[0] > 0.7)\n"
    )
    child, parent = python(code).splitlines()
    assert "forked from one that had used OpenCL" in child
    assert "spawn" in child
    assert child.endswith("False")
    assert parent == "3 True"


@needs_fork
def test_a_child_may_be_the_first_to_use_it(python, device):
    code = USE + (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if t.silu(x)[0] > 0.7 else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), t.silu(x)[0] > 0.7)\n"
    )
    assert python(code).strip() == "0 True"
