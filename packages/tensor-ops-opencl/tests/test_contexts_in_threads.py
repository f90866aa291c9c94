"""Threads, each with a queue and kernels of its own, and children of processes that used OpenCL."""

import ast
import os
import threading

import numpy as np
import pytest

import tensor_ops_opencl

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
FORKED = (
    "this process was forked after the device was used, and OpenCL does not survive a fork; start "
    'children with multiprocessing\'s "spawn" or "forkserver", or use OpenCL first in the child'
)
# The module's answers in a child that cannot use OpenCL.
ANSWERS = """
def of_call():
    try:
        t.silu(x)
    except t.DeviceError as error:
        return str(error)

def answers():
    found = [of_call(), t.probe()["reason"], t.info()["reason"], t.get_opencl_info()["reason"]]
    found.append(t.supports("silu", "float32", "cpu"))
    return [*found, t.probe()["available"], t.probe()["kind"], t.get_opencl_info()["platforms"]]
"""
# Python warns where a driver has threads of its own.
FORK = """
import warnings
with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    child = os.fork()
"""
IN_CHILD = f"""{FORK}
if child == 0:
    start = time.perf_counter()
    print(answers(), time.perf_counter() - start < 1, sep="\\n", flush=True)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), t.silu(x)[0] > 0.7)
"""
USE = "import numpy as np, os, tensor_ops_opencl as t\nx = np.ones(100, np.float32)\n"


def test_threads_that_start_together_build_once(device, use_device, monkeypatch):
    here = use_device()
    built = []
    build = here.programs.build

    def counting(op, options):
        built.append(op)
        return build(op, options)

    monkeypatch.setattr(here.programs, "build", counting)
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
@pytest.mark.parametrize("used", ["t.silu(x)", "t.probe()", "t.info()", "t.get_opencl_info()"])
def test_a_child_is_told_that_it_cannot_use_opencl(python, device, used):
    code = f"import time\n{USE}{ANSWERS}{used}\n{IN_CHILD}"
    child, is_quick, parent = python(code).splitlines()
    assert ast.literal_eval(child) == [FORKED] * 5 + [False, None, []]
    assert is_quick == "True"
    assert parent == "3 True"


@needs_fork
def test_a_child_whose_parent_used_arrays_of_the_device_is_told_too(python, device):
    use_arrays = (
        "import pyopencl as cl, pyopencl.array\n"
        "from tensor_ops_opencl import drivers\n"
        f"platform, index = map(int, {device.index!r}.split(':'))\n"
        "with drivers.registered():\n"
        "    handle = cl.get_platforms()[platform].get_devices()[index]\n"
        "context = cl.Context([handle])\n"
        "queue = cl.CommandQueue(context)\n"
        "t.silu(cl.array.to_device(queue, x)).get()\n"
    )
    code = f"import time\n{USE}{ANSWERS}{use_arrays}{IN_CHILD}"
    child, _, parent = python(code).splitlines()
    assert ast.literal_eval(child)[:5] == [FORKED] * 5
    assert parent == "3 True"


@needs_fork
def test_no_driver_is_touched_in_such_a_child(python, device):
    """Calls that would load a driver, or ask one, fail at once."""
    touch = (
        "import ctypes, pyopencl\n"
        "def touched(*args): os._exit(9)\n"
        "ctypes.CDLL = pyopencl.get_platforms = pyopencl.Context = touched\n"
    )
    in_child = IN_CHILD.replace("    start", f"    exec({touch!r})\n    start", 1)
    _, _, parent = python(f"import time\n{USE}{ANSWERS}t.silu(x)\n{in_child}").splitlines()
    assert parent == "3 True"


@needs_fork
@pytest.mark.parametrize("before", ["", "import pyopencl\n", "t.pool_info()\n"])
def test_a_child_may_be_the_first_to_use_it(python, device, before):
    code = f"{USE}{before}" + (
        f"{FORK}"
        "if child == 0:\n"
        "    os._exit(0 if t.silu(x)[0] > 0.7 and t.probe()['available'] else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), t.silu(x)[0] > 0.7)\n"
    )
    assert python(code).strip() == "0 True"


@needs_fork
def test_without_a_platform_a_child_hears_of_that(python, tmp_path):
    code = (
        "import os, pyopencl, tensor_ops_opencl as t\n"
        "os.environ['PYOPENCL_HOME'] = os.devnull\n"
        "t.probe()\n"
        f"{FORK}"
        "if child == 0:\n"
        "    print(t.probe()['reason'], flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    assert "no OpenCL platform was found" in python(code, OCL_ICD_VENDORS=f"{tmp_path}/")
