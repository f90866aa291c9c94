"""Device arrays through the C interface, and what it says of devices.

Host arrays, and wrong arguments of any kind: tests/conformance/test_c_interface.py.
"""

import ctypes
import sys

import numpy as np
import pytest
from device_calls import new_call
from emulated import Array as DeviceMemory
from emulated import Capture

import tensor_ops_cuda
from c_interface import (
    CPU,
    CUDA,
    DTYPES,
    MEMORY_ERROR,
    OK,
    RUNTIME_ERROR,
    TYPE_ERROR,
    VALUE_ERROR,
    Array,
    Interface,
)
from calls import LAYOUTS, choices, draw_arguments
from tensor_ops.ops import OPS

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(scope="module")
def interface():
    return Interface("cuda")


@pytest.fixture
def upload(runtime):
    """A function that copies a NumPy array to a device, strides included."""
    return lambda array, device=0: DeviceMemory.of(runtime, array, device)


def compute(interface, runtime, op, values, like):
    """Return what an op gives for device memory, on a stream of its own, as NumPy arrays."""
    stream = runtime.stream()
    outputs = [DeviceMemory.of(runtime, np.zeros_like(each)) for each in like]
    assert interface.call(op, new_call(interface, op, values, outputs, stream)) == (OK, "")
    runtime.synchronize(stream)
    return [each.numpy() for each in outputs]


def expected_of(op, values):
    found = tensor_ops_cuda.ops[op.name](**values)
    return found if isinstance(found, tuple) else (found,)


def same_bits(found, expected):
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


# Results


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", tensor_ops_cuda.ops)
def test_bits_are_those_of_the_module(interface, runtime, upload, name, dtype):
    op = OPS[name]
    for kwargs in choices(op):
        values = draw_arguments(op, (5, 64), dtype, "device") | kwargs
        expected = expected_of(op, values)
        on_device = {
            key: upload(value) if isinstance(value, np.ndarray) else value
            for key, value in values.items()
        }
        assert all(map(same_bits, compute(interface, runtime, name, on_device, expected), expected))


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each != "unaligned"])
def test_layouts(interface, runtime, upload, layout):
    values = draw_arguments(OPS["rms_norm"], (3, 4, 70), "float32", layout)
    expected = expected_of(OPS["rms_norm"], values)
    on_device = {name: upload(LAYOUTS[layout](value)) for name, value in values.items()}
    found = compute(interface, runtime, "rms_norm", on_device, expected)
    assert all(map(same_bits, found, expected))


def test_in_place_and_strided_output(interface, runtime, upload, rng):
    host = rng.normal(size=(6, 40)).astype(np.float32)
    x, wide = upload(host), np.zeros((6, 80), np.float32)
    out = upload(wide[:, 1::2])
    for target in (out, x):
        call = new_call(interface, "silu", {"x": x}, [target])
        assert interface.call("silu", call) == (OK, "")
        assert same_bits(target.numpy(), tensor_ops_cuda.silu(host))
    around = runtime.read(out.address - 4, 480, np.float32)
    assert not around[::2].any()


def test_arrays_of_no_elements(interface):
    shape = (ctypes.c_int64 * 2)(3, 0)
    empty = Array(None, DTYPES["float32"], 2, shape, None, CUDA, 0)
    call = interface.make_call("silu", {"x": empty}, [empty])
    assert interface.call("silu", call) == (OK, "")


# Streams


def test_a_call_is_done_when_its_stream_is(interface, runtime, upload, rng):
    """It waits for what its stream was asked to do before, and the host for nothing."""
    host = rng.normal(size=(6, 40)).astype(np.float32)
    stream, other = runtime.stream(), runtime.stream()
    x, out = upload(np.zeros_like(host)), upload(np.full_like(host, 7))
    runtime.upload_later(x.address, runtime.pinned(host), host.nbytes, stream)
    assert interface.call("silu", new_call(interface, "silu", {"x": x}, [out], stream))[0] == OK
    assert not runtime.is_idle(stream)
    # The emulated device's memory is the host's.
    assert (
        np.ctypeslib.as_array(ctypes.cast(out.address, ctypes.POINTER(ctypes.c_float)), (1,)) == 7
    )
    runtime.synchronize(other)
    assert not runtime.is_idle(stream)
    runtime.synchronize(stream)
    assert same_bits(out.numpy(), tensor_ops_cuda.silu(host))


def test_no_stream_is_the_default_one(interface, runtime, upload):
    x = upload(np.ones((2, 8), np.float32))
    assert interface.call("silu", new_call(interface, "silu", {"x": x}, [x]))[0] == OK
    assert not runtime.is_idle(None)
    runtime.synchronize(None)
    assert runtime.is_idle(None)


@pytest.mark.parametrize("layout", ["contiguous", "gathered"])
def test_a_call_is_captured(interface, runtime, upload, rng, layout):
    host = rng.normal(size=(6, 40)).astype(np.float32)
    x = upload(host if layout == "contiguous" else host[:, ::2])
    out, stream = upload(np.zeros(x.shape, np.float32)), runtime.stream()
    with Capture(runtime, stream) as capture:
        call = new_call(interface, "silu", {"x": x}, [out], stream)
        assert interface.call("silu", call) == (OK, "")
    assert not out.numpy().any()
    capture.launch()
    expected = tensor_ops_cuda.silu(host if layout == "contiguous" else host[:, ::2].copy())
    assert same_bits(out.numpy(), expected)


def test_an_unknown_stream_is_the_driver_s_error(interface, upload):
    x = upload(np.ones((2, 8), np.float32))
    status, message = interface.call("silu", new_call(interface, "silu", {"x": x}, [x], 12345))
    assert status == RUNTIME_ERROR
    assert "cudaErrorInvalidResourceHandle" in message


# Errors, before any work


@pytest.fixture
def arguments(upload):
    """Arguments of silu_mul on a device, and its output."""
    host = np.ones((2, 8), np.float32)
    return {"gate": upload(host), "up": upload(host)}, upload(np.zeros_like(host))


def refused(interface, runtime, values, out):
    """Return status and message of a call that must not have begun."""
    stream = runtime.stream()
    call = new_call(interface, "silu_mul", values, [out], stream)
    answer = interface.call("silu_mul", call)
    assert runtime.is_idle(stream)
    assert not (out.numpy() if isinstance(out, DeviceMemory) else out).any()
    return answer


def test_host_and_device_arrays(interface, runtime, arguments):
    values, out = arguments
    host = np.ones((2, 8), np.float32)
    says = "; all arrays of a call must be in host memory, or on one device"
    answer = refused(interface, runtime, values | {"up": host}, out)
    assert answer == (TYPE_ERROR, f"silu_mul: up is in host memory and gate is on cuda:0{says}")
    answer = refused(interface, runtime, values | {"gate": host}, out)
    assert answer == (TYPE_ERROR, f"silu_mul: up is on cuda:0 and gate is in host memory{says}")
    answer = refused(interface, runtime, values, np.zeros_like(host))
    assert answer == (TYPE_ERROR, f"silu_mul: out is in host memory and gate is on cuda:0{says}")


def test_devices_that_are_not_one(interface, runtime, arguments):
    values, out = arguments
    out.index = 1
    says = "silu_mul: out is on cuda:1 and gate is on cuda:0; all arrays of a call must be on one"
    assert refused(interface, runtime, values, out) == (VALUE_ERROR, f"{says} device")


@pytest.mark.parametrize("index", [1, -1])
def test_a_device_that_is_not_there(interface, runtime, arguments, index):
    values, out = arguments
    for each in (*values.values(), out):
        each.index = index
    status, message = refused(interface, runtime, values, out)
    assert status == VALUE_ERROR
    assert f"there is no device cuda:{index}; the devices are cuda:0" in message


def test_memory_that_is_elsewhere(interface, runtime, arguments):
    """Host memory, pinned or not, that is said to be a device's, and the other way around."""
    values, out = arguments
    host = np.ones((2, 8), np.float32)
    for address in (host.ctypes.data, runtime.pinned(host)):
        wrong = DeviceMemory(runtime, address, (2, 8), (8, 1), "float32")
        status, message = refused(interface, runtime, values | {"up": wrong}, out)
        assert status == VALUE_ERROR
        assert "up is said to be on cuda:0, and its data is in no device's memory" in message
    call = new_call(interface, "silu_mul", values, [out])
    for each in (*call.inputs[:2], call.outputs[0]):
        each.device_kind = CPU
    status, message = interface.call("silu_mul", call)
    assert status == VALUE_ERROR
    assert "gate is said to be in host memory, and its data is on cuda:0" in message


def test_elements_that_are_not_aligned(interface, runtime, arguments):
    values, out = arguments
    values["up"].address += 2
    values["up"].shape = values["gate"].shape = out.shape = (2, 7)
    status, message = refused(interface, runtime, values, out)
    assert status == VALUE_ERROR
    assert "up's elements do not lie at multiples of their 4 bytes; pass a copy" in message


def test_memory_ends(interface, runtime):
    x = np.ones((64, 1000), np.float32)
    runtime.set_memory(device=100)
    try:
        status, message = interface.call(
            "silu", interface.make_call("silu", {"x": x}, [np.empty_like(x)])
        )
    finally:
        runtime.set_memory()
    assert status == MEMORY_ERROR
    assert "silu: cuda:0 has no memory for" in message
    assert same_bits(interface.result("silu", {"x": x})[0], tensor_ops_cuda.silu(x))


# Devices


def test_configuration(interface):
    architectures = tensor_ops_cuda._native.architectures.replace(" ", ",")
    configuration = interface.table.configuration.decode()
    assert configuration.split() == [f"architectures={architectures}", "emulation=on"]
    assert tensor_ops_cuda.configuration() == configuration


def test_threads_have_no_meaning(interface):
    assert interface.table.num_threads() == 1
    assert interface.table.set_num_threads(8, None) == OK
    assert interface.table.num_threads() == 1


USE = """
import ctypes, os, sys
sys.path += {path!r}
import numpy as np
from c_interface import CUDA, Device, Error, Interface
interface = Interface("cuda")
table, x, error = interface.table, np.linspace(-3, 3, 12, dtype=np.float32), Error()
def silu(x, out, **changes):
    call = interface.make_call("silu", dict(x=x), [out])
    return interface.call("silu", call)
def reason():
    found = table.unavailable_reason()
    return found and found.decode()
"""


@pytest.fixture
def run(python):
    """A function that runs code in a process whose device is a certain one."""
    path = [each for each in sys.path if each.endswith(("tensor-ops-cuda/tests", "conformance"))]

    def started(code, environment=(), **settings):
        named = {f"TENSOR_OPS_EMULATED_{name}": value for name, value in settings.items()}
        return python(USE.format(path=path) + code, **named, **dict(environment))

    return started


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"DRIVER": "none"}, "there is no NVIDIA driver"),
        ({"DEVICES": "0"}, "the driver sees no NVIDIA GPU"),
        ({"CAPABILITY": "7.0"}, "has no code for compute capability 7.0"),
    ],
    ids=str,
)
def test_reasons(run, settings, reason):
    code = (
        "print(reason()); print(table.device_count(), *silu(x, x.copy()), sep='|')\n"
        "print(*silu(x[:0], x[:0].copy()), sep='|')\n"
        "import tensor_ops_cuda; assert not tensor_ops_cuda.probe()['available']\n"
    )
    said, called, empty = run(code, **settings).splitlines()
    assert reason in said
    assert empty == f"4|silu: tensor_ops_cuda is unavailable: {said}"
    assert called == f"0|{empty}"


def test_a_forked_child_is_told_so(run):
    code = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "before, out = silu(x, x.copy())[0], x.copy()\n"
        "kept = table.unavailable_reason\n"
        "if (child := os.fork()) == 0:\n"
        "    print(before, reason(), table.device_count(), *silu(x, out), sep='|', flush=True)\n"
        "    print((out == x).all(), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(reason(), silu(x, out)[0])\n"
    )
    child, kept, parent = run(code).splitlines()
    before, reason, count, status, message = child.split("|")
    assert (before, count, status, kept) == ("0", "0", "4", "True")
    assert "this process was forked after the device was used" in reason
    assert message == f"silu: tensor_ops_cuda is unavailable: {reason}"
    assert parent == "None 0"


def test_devices(run):
    code = (
        "import tensor_ops_cuda as t\n"
        "for index, known in enumerate(t.devices()):\n"
        "    device = Device(ctypes.sizeof(Device))\n"
        "    assert table.device(index, device, error) == 0, error.text\n"
        "    assert (device.kind, device.index) == (CUDA, index)\n"
        "    assert device.name.decode() == known.name\n"
        "    assert device.compute_capability == known.compute_capability\n"
        "    assert device.compute_units == known.compute_units\n"
        "    assert device.memory == known.max_memory\n"
        "    assert device.shared_memory == known.max_shared_memory\n"
        "print(table.device_count())\n"
    )
    assert run(code, DEVICES="3") == "3\n"


def test_device_of_host_arrays(run):
    """The current one, or that of the variable, as it is at the time of the call."""
    code = (
        "out = np.empty_like(x)\n"
        "assert silu(x, out)[0] == 0\n"
        "libc = ctypes.CDLL(None)\n"
        "for device in (b'1', b'2'):\n"
        "    libc.setenv(b'TENSOR_OPS_CUDA_DEVICE', device, 1)\n"
        "    print(reason(), table.device_count(), *silu(x, out), sep='|')\n"
    )
    right, wrong = run(code, DEVICES="2").splitlines()
    says = "TENSOR_OPS_CUDA_DEVICE is '2'; it must be the index of a device, from 0 to 1"
    assert (right, wrong) == ("None|2|0|", f"{says}|0|2|{says}")


def test_the_current_device_stays(run):
    """Arrays are computed where they are, whichever device is current."""
    code = (
        "from emulated import Array as DeviceMemory, Runtime\n"
        "from device_calls import new_call\n"
        "runtime, now = Runtime(), ctypes.c_int()\n"
        "for device, current in ((1, 0), (0, 1), (1, 1)):\n"
        "    given = DeviceMemory.of(runtime, x, device)\n"
        "    out = DeviceMemory.of(runtime, np.zeros_like(x), device)\n"
        "    runtime.cudaSetDevice(device)\n"
        "    stream = runtime.stream()\n"
        "    runtime.cudaSetDevice(current)\n"
        "    call = new_call(interface, 'silu', {'x': given}, [out], stream)\n"
        "    assert interface.call('silu', call) == (0, ''), interface.call('silu', call)\n"
        "    runtime.cudaGetDevice(ctypes.byref(now))\n"
        "    assert now.value == current\n"
        "    runtime.synchronize(stream)\n"
        "    assert silu(x, host := np.empty_like(x))[0] == 0\n"
        "    assert (out.numpy() == host).all()\n"
        "given.index = out.index = 0\n"
        "call = new_call(interface, 'silu', {'x': given}, [out])\n"
        "print(interface.call('silu', call)[1])\n"
    )
    assert run(code, DEVICES="2").startswith(
        "silu: x is said to be on cuda:0, and its data is on cuda:1; give the device_kind"
    )
