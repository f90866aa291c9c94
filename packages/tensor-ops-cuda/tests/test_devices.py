"""Which devices there are, which one is used, and why there may be none."""

import ast

import emulated
import numpy as np
import pytest

PROBE = "import tensor_ops_cuda as t; print(t.probe()['available'], t.probe()['reason'])"
CALL = "import numpy as np, tensor_ops_cuda as t; t.silu(np.ones(3, np.float32))"

REASONS = {
    "no driver": ({"DRIVER": "none"}, "there is no NVIDIA driver"),
    "old driver": ({"DRIVER": "12040"}, "it supports CUDA 12.4, and tensor_ops_cuda needs 13.0"),
    "no device": ({"DEVICES": "0"}, "the driver sees no NVIDIA GPU; check nvidia-smi"),
    "old device": ({"CAPABILITY": "7.0"}, "has no code for compute capability 7.0"),
}


@pytest.fixture
def emulate(python, runtime):
    """A function that runs code where the device is a certain one."""

    def run(code, *, fails=False, environment=(), **settings):
        named = {f"TENSOR_OPS_EMULATED_{name}": value for name, value in settings.items()}
        return python(code, fails=fails, **named, **dict(environment))

    return run


@pytest.mark.parametrize("case", REASONS)
def test_reasons(emulate, case):
    settings, reason = REASONS[case]
    answer = emulate(PROBE, **settings)
    assert answer.startswith("False ")
    assert reason in answer
    message = emulate(CALL, fails=True, **settings)
    assert "RuntimeError: silu: tensor_ops_cuda is unavailable: " in message
    assert reason in message


@pytest.mark.parametrize("case", REASONS)
def test_everything_answers_without_a_device(emulate, case):
    settings, reason = REASONS[case]
    code = (
        "import tensor_ops_cuda as t\n"
        "info, cuda = t.info(), t.get_cuda_info()\n"
        "assert not info['available'] and not cuda['available']\n"
        "assert info['device_name'] is None and t.probe()['kind'] is None\n"
        "numbers = ('device_count', 'compute_capability', 'compute_units', 'max_memory',\n"
        "           'max_shared_memory')\n"
        "assert [info[name] for name in numbers] == [0] * 5\n"
        "assert t.supports('silu', 'float32', 'cuda:0') and t.supports('silu', 'float32', 'cpu')\n"
        "print(info['reason']); print(cuda)\n"
    )
    answer = emulate(code, **settings)
    assert answer.count(reason) >= 2


def test_argument_errors_come_before_the_device(emulate):
    code = CALL.replace("np.float32", "np.int32")
    assert "TypeError: silu: x has dtype int32" in emulate(code, fails=True, DRIVER="none")


def test_architectures(emulate):
    """Machine code runs on later minor versions, PTX on all that is later."""
    for capability, expected in (
        ("7.5", "True"),
        ("8.7", "True"),
        ("9.0", "True"),
        ("13.1", "True"),
    ):
        assert emulate(PROBE, CAPABILITY=capability).startswith(expected)


TWO = """
import numpy as np, tensor_ops_cuda as t
from tensor_ops_cuda import _native
assert t.probe()["devices"] == ["cpu", "cuda:0", "cuda:1"]
assert t.info()["device_count"] == 2
x = np.arange(6, dtype=np.float32)
"""


def test_two_devices(emulate):
    code = TWO + (
        "a, b = t.to_device(x, device=0), t.to_device(x, device='cuda:1')\n"
        "for array in (a, b):\n"
        "    y = t.silu(t.silu(array))\n"
        "    assert y.device == array.device\n"
        "    assert (y.numpy() == t.silu(t.silu(x))).all()\n"
        "assert _native.host_device() == 0\n"
        "try: t.silu_mul(a, b)\n"
        "except ValueError as error: print(error)\n"
    )
    assert "silu_mul: up is on cuda:1 and gate is on cuda:0; all arrays" in emulate(
        code, DEVICES="2"
    )


def test_threads_on_two_devices(emulate):
    code = TWO + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def work(i):\n"
        "    y = t.to_device(x + i, device=i % 2)\n"
        "    for _ in range(5): y = t.silu(y)\n"
        "    assert y.device == f'cuda:{i % 2}'\n"
        "    return y.numpy()\n"
        "with ThreadPoolExecutor(8) as pool: results = list(pool.map(work, range(16)))\n"
        "for i, got in enumerate(results):\n"
        "    y = x + np.float32(i)\n"
        "    for _ in range(5): y = t.silu(y)\n"
        "    assert (got == y).all()\n"
    )
    assert emulate(code, DEVICES="2") == ""


def test_device_of_host_arrays(emulate):
    code = TWO + "print(t.get_cuda_info()['device'], t.to_device(x).device, (t.silu(x) > -1).all())"
    chosen = {"TENSOR_OPS_CUDA_DEVICE": "1"}
    assert emulate(code, DEVICES="2", environment=chosen).strip() == "1 cuda:1 True"
    for wrong in ("2", "-1", "one", "0x1"):
        message = emulate(CALL, fails=True, environment={"TENSOR_OPS_CUDA_DEVICE": wrong})
        assert f"TENSOR_OPS_CUDA_DEVICE is '{wrong}'; it must be the index of a device" in message


def test_current_device_of_host_arrays(emulate):
    code = TWO + (
        "import ctypes\n"
        f"runtime = ctypes.CDLL({str(emulated.LIBRARY)!r})\n"
        "runtime.cudaSetDevice(1)\n"
        "assert t.to_device(x).device == 'cuda:1'\n"
        "t.silu(t.to_device(x, device=0)), t.silu(x)\n"
        "now = ctypes.c_int(); runtime.cudaGetDevice(ctypes.byref(now)); print(now.value)\n"
    )
    assert emulate(code, DEVICES="2").strip() == "1"


FORK = """
import os, sys, warnings
import numpy as np, tensor_ops_cuda as t
x = np.ones(3, np.float32)
d = None
{before}
warnings.simplefilter("ignore")
if (child := os.fork()) == 0:
    calls = [lambda: t.silu(x), lambda: t.silu(d), lambda: d.numpy() if d else t.silu(d)]
    for call in (*calls, lambda: t.to_device(x), t.devices):
        try:
            call()
            print("worked")
        except RuntimeError as error:
            print(error)
        except TypeError:
            print("no device array")
    print(t.probe())
    print(t.trim_pool())
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
FORKED = (
    "this process was forked after the device was used, and CUDA does not survive a fork; "
    'start children with multiprocessing\'s "spawn" or "forkserver", or use CUDA first in the child'
)


def test_fork_after_use(emulate):
    """Every call says so, and none asks the driver, which would fail in words of its own."""
    answer = emulate(
        FORK.format(before="y = t.silu(np.ones(100_000, np.float32)); d = t.to_device(x)")
    )
    *errors, found, freed = answer.splitlines()
    assert [error[error.index("this process") :] for error in errors] == [FORKED] * 5
    assert ast.literal_eval(found) == {
        "available": False,
        "reason": FORKED,
        "devices": [],
        "kind": None,
    }
    assert freed == "0"


def test_fork_before_use(emulate):
    *calls, found, _ = emulate(FORK.format(before="")).splitlines()
    assert calls == ["worked", "no device array", "no device array", "worked", "worked"]
    assert ast.literal_eval(found)["kind"] == "gpu"


def test_import_asks_the_driver_nothing(emulate):
    code = (
        "import os, tensor_ops_cuda, warnings; warnings.simplefilter('ignore')\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "else: print(tensor_ops_cuda.probe()['available'], flush=True); os._exit(0)\n"
    )
    assert emulate(code).strip() == "True"


def test_device_facts(device):
    assert device.compute_units >= 1
    assert device.max_memory > 2**20
    major, minor = divmod(device.compute_capability, 10)
    assert f"compute capability {major}.{minor}" in str(device)
    assert np.isfinite(device.max_shared_memory)
