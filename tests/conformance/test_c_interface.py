"""The C interface of native backends: the bits of the Python module, and every wrong argument."""

import ctypes
import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from c_interface import (
    CPU,
    CUDA,
    NO_ARRAY,
    OK,
    SCALAR,
    STATUS_OF,
    TYPE_ERROR,
    VALUE_ERROR,
    Array,
    Backend,
    Call,
    Device,
    Error,
    Interface,
    library_path,
)
from calls import LAYOUTS, SHAPES, as_tuple, choices, draw_arguments, fits
from tensor_ops.backends import load
from tensor_ops.ops import OPS

INCLUDE = Path(__file__).parents[2] / "native" / "include"


@pytest.fixture
def interface(request, backend):
    """The C interface of a backend that has one; the others are left out."""
    if "op" in request.fixturenames:
        request.getfixturevalue("supported")
    return Interface(backend)


def same_bits(found, expected):
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def test_bits_are_those_of_the_module(op, interface, backend, dtype):
    for shape in SHAPES:
        if not fits(op, shape):
            continue
        for kwargs in choices(op):
            values = draw_arguments(op, shape, dtype, f"interface {shape}") | kwargs
            expected = as_tuple(op.public(**values, backend=backend))
            found = interface.result(op.name, values)
            assert all(map(same_bits, found, expected))


def test_layouts(op, interface, backend):
    plain = draw_arguments(op, (3, 4, 70), "float32", "interface layouts")
    for layout, laid_out in LAYOUTS.items():
        values = {name: laid_out(value) for name, value in plain.items()}
        expected = as_tuple(op.public(**values, backend=backend))
        assert all(map(same_bits, interface.result(op.name, values), expected)), layout


def test_in_place_and_strided_outputs(op, interface, backend):
    values = draw_arguments(op, (5, 64), "float32", "interface in place")
    expected = as_tuple(op.public(**values, backend=backend))
    backing = [np.zeros([2 * size for size in each.shape], np.float32) for each in expected]
    outputs = [each[(slice(None, None, 2),) * each.ndim] for each in backing]
    assert interface.call(op.name, interface.make_call(op.name, values, outputs))[0] == OK
    assert all(map(same_bits, map(np.ascontiguousarray, outputs), expected))
    assert all(np.all(each[1::2] == 0) and np.all(each[..., 1::2] == 0) for each in backing)
    x = next(iter(values.values()))
    outputs = [x, *map(np.empty_like, expected[1:])]
    assert interface.call(op.name, interface.make_call(op.name, values, outputs))[0] == OK
    assert all(map(same_bits, outputs, expected))


def test_mixed_dtypes(interface, backend):
    x = np.linspace(-3, 3, 60).reshape(3, 20).astype(np.float16)
    weight = np.linspace(0, 1, 20, dtype=np.float32)
    values = {"x": x, "weight": weight, "eps": 0.5}
    expected = OPS["rms_norm"].public(**values, backend=backend)
    assert same_bits(interface.result("rms_norm", values)[0], expected)


def test_optional_array_and_defaults(interface, backend):
    x, weight = np.linspace(-3, 3, 60, dtype=np.float32).reshape(3, 20), np.ones(20, np.float32)
    expected = OPS["layer_norm"].public(x, weight, backend=backend)
    assert same_bits(interface.result("layer_norm", {"x": x, "weight": weight})[0], expected)


def test_facts(interface, backend):
    table = interface.table
    module = load(backend).module
    assert (table.size, table.abi_version) == (ctypes.sizeof(Backend), 1)
    assert table.name.decode() == backend
    assert table.version.decode() == module.__version__
    assert table.unavailable_reason() is None
    assert list(interface.ops) == sorted(module.ops)
    assert all("=" in word for word in table.configuration.decode().split())
    info = module.info()
    assert table.device_count() == info["device_count"]
    device, error = Device(ctypes.sizeof(Device)), Error()
    assert table.device(0, ctypes.byref(device), ctypes.byref(error)) == OK, error.text
    assert device.kind == (CPU if backend == "cpp" else CUDA)
    assert device.memory == info["max_memory"]
    assert device.compute_units == info["compute_units"]
    assert device.compute_capability == info["compute_capability"]
    assert device.name.decode() == info["device_name"]


def test_parameters_are_those_of_the_ops(op, interface):
    parameters = interface.parameters(op.name)
    assert [each.name.decode() for each in parameters] == [*op.kinds]
    for each, kind in zip(parameters, op.kinds.values(), strict=True):
        assert (each.kind < SCALAR) == kind.is_array
        if kind.role == "choice":
            assert [c.decode() for c in each.choices] == [*kind.choices]


# Wrong arguments


def rms_norm_call(interface):
    x, weight = np.ones((2, 4), np.float32), np.ones(4, np.float32)
    return interface.make_call("rms_norm", {"x": x, "weight": weight}, [np.zeros_like(x)])


def change_input(field, value, k=0):
    return lambda call: setattr(call.inputs[k], field, value)


def change_output(field, value):
    return lambda call: setattr(call.outputs[0], field, value)


def change(field, value):
    return lambda call: setattr(call, field, value)


LONG = (ctypes.c_int64 * 64)(*[1 << 61] * 64)
NEGATIVE = (ctypes.c_int64 * 2)(-1, 4)
WRONG = {
    "size": (change("size", 8), VALUE_ERROR, "tensor_ops_call.size must be sizeof"),
    "no inputs": (change("inputs", None), VALUE_ERROR, "inputs is a null pointer"),
    "no outputs": (change("outputs", None), VALUE_ERROR, "outputs is a null pointer"),
    "too few inputs": (change("input_count", 1), TYPE_ERROR, "takes 2 inputs, got 1"),
    "too many outputs": (change("output_count", 2), TYPE_ERROR, "takes 1 outputs, got 2"),
    "scalars": (change("scalar_count", 2), TYPE_ERROR, "takes at most 1 scalars, got 2"),
    "negative scalars": (change("scalar_count", -1), TYPE_ERROR, "at most 1 scalars, got -1"),
    "null scalars": (change("scalars", None), VALUE_ERROR, "scalars is a null pointer"),
    "no such choice": (change("choice", 1), VALUE_ERROR, "choice must be 0, for the op has none"),
    "threads": (change("num_threads", -1), VALUE_ERROR, "num_threads must be at least 0, got -1"),
    "null data": (change_input("data", None), VALUE_ERROR, "x.data is a null pointer"),
    "null shape": (change_input("shape", None), VALUE_ERROR, "x.shape is a null pointer"),
    "dims": (change_input("dims", 65), VALUE_ERROR, "x.dims must be from 0 to 64, got 65"),
    "negative dims": (change_input("dims", -1), VALUE_ERROR, "x.dims must be from 0 to 64"),
    "no axis": (change_input("dims", 0), VALUE_ERROR, "at least one axis, got a 0-d array"),
    "negative length": (change_input("shape", NEGATIVE), VALUE_ERROR, "no negative length"),
    "too large": (change_input("shape", LONG), VALUE_ERROR, "more than fits into memory"),
    "far strides": (change_input("strides", LONG), VALUE_ERROR, "more than fits into memory"),
    "dtype": (change_input("dtype", 17), TYPE_ERROR, "x has dtype number 17; the supported"),
    "no x": (change_input("dtype", NO_ARRAY), TYPE_ERROR, "x is required"),
    "no weight": (change_input("dtype", NO_ARRAY, 1), TYPE_ERROR, "weight is required"),
    "other dtype": (change_input("dtype", 3, 1), TYPE_ERROR, "weight must have x's dtype float32"),
    "no output": (change_output("dtype", NO_ARRAY), TYPE_ERROR, "out must have x's dtype"),
    "output's dtype": (change_output("dtype", 1), TYPE_ERROR, "out must have x's dtype float32"),
    "output's axes": (change_output("dims", 1), VALUE_ERROR, "out must have x's shape (2, 4)"),
    "device": (change_input("device_kind", 7), VALUE_ERROR, "x must be"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments(interface, what):
    spoil, status, says = WRONG[what]
    call = rms_norm_call(interface)
    spoil(call)
    found, message = interface.call("rms_norm", call)
    assert found == status
    assert says in message
    assert not call.kept[4][0].any()  # nothing was written


@pytest.mark.parametrize("shape", [(), (0,), (3, 5)], ids=str)
def test_errors_say_what_python_says(op, interface, backend, shape):
    """All but the advice, which names what Python has."""
    values = draw_arguments(op, (3, 4), "float32", "interface errors")
    name = list(values)[-1]
    wrong = values | {name: np.zeros(shape, np.float64)}
    if len(values) == 1:
        wrong[name] = np.zeros(shape, np.int32)
    with pytest.raises((TypeError, ValueError)) as raised:
        load(backend).module.ops[op.name](**wrong)
    outputs = [np.zeros((3, 4), np.float32) for _ in range(interface.ops[op.name].output_count)]
    status, message = interface.call(op.name, interface.make_call(op.name, wrong, outputs))
    assert status == STATUS_OF[raised.type]
    expected = str(raised.value).replace("int32", "number 99")
    assert message.split(";")[0] == expected.split(";")[0]


def test_overlap(interface):
    memory = np.zeros(40, np.float32)
    x, weight = memory[:32].reshape(4, 8), np.ones(8, np.float32)
    call = interface.make_call("rms_norm", {"x": x, "weight": weight}, [memory[4:36].reshape(4, 8)])
    status, message = interface.call("rms_norm", call)
    assert status == VALUE_ERROR
    assert message.startswith("rms_norm: out overlaps x without being exactly the same view")
    repeated = np.lib.stride_tricks.as_strided(memory, (4, 8), (0, 4))
    call = interface.make_call("rms_norm", {"x": x.copy(), "weight": weight}, [repeated])
    assert "overlaps itself" in interface.call("rms_norm", call)[1]


def test_null_pointers(interface):
    table, error = interface.table, Error()
    assert interface.get(1, None, ctypes.byref(error)) == VALUE_ERROR
    assert "null pointer" in error.text
    assert table.call(None, None, ctypes.byref(error)) == VALUE_ERROR
    assert "op must be one of the ops of this backend" in error.text
    assert interface.call("silu", None) == (VALUE_ERROR, "silu: call is a null pointer")
    assert table.device(0, None, ctypes.byref(error)) == VALUE_ERROR
    # Who wants no message gets none.
    assert table.call(None, None, None) == VALUE_ERROR
    assert interface.get(1, None, None) == VALUE_ERROR


def test_another_version(interface, backend):
    table, error = ctypes.POINTER(Backend)(), Error()
    assert interface.get(2, ctypes.byref(table), ctypes.byref(error)) == VALUE_ERROR
    assert not table
    assert "asks for version 2 of the interface" in error.text
    assert f"tensor_ops_{backend}" in error.text


def test_devices_that_are_not_there(interface):
    device, error = Device(ctypes.sizeof(Device)), Error()
    for index in (-1, interface.table.device_count()):
        assert interface.table.device(index, device, error) == VALUE_ERROR
        assert f"got {index}" in error.text
    assert interface.table.device(0, Device(8), error) == VALUE_ERROR
    assert "tensor_ops_device.size" in error.text


def test_number_of_threads(interface, backend):
    before, error = interface.table.num_threads(), Error()
    assert before >= 1
    assert interface.table.set_num_threads(0, error) == VALUE_ERROR
    assert "at least 1, got 0" in error.text
    assert interface.table.set_num_threads(3, error) == OK
    if backend == "cpp":
        assert interface.table.num_threads() == 3 == load(backend).module.get_num_threads()
    assert interface.table.set_num_threads(before, error) == OK


def test_threads_call_at_once(interface, backend):
    op = OPS["softmax"]
    given = [draw_arguments(op, (k + 1, 300), "float32", f"thread {k}") for k in range(8)]
    expected = [op.public(**values, backend=backend) for values in given]
    wrong = []

    def work(k):
        found = (interface.result("softmax", given[k])[0] for _ in range(50))
        wrong.extend(k for each in found if not same_bits(each, expected[k]))

    threads = [threading.Thread(target=work, args=[k]) for k in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


@pytest.mark.skipif(os.name != "posix", reason="fork and dlclose")
def test_library_outlives_dlclose_and_fork(interface, backend, tmp_path):
    """A program without Python computes right after it has forked and unloaded the library."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler is installed")
    source = Path(__file__).with_name("c_interface_program.c")
    program = tmp_path / "program"
    options = ["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(
        [compiler, *options, f"-I{INCLUDE}", source, "-o", program, "-ldl", "-lm"], check=True
    )
    done = subprocess.run(
        [program, library_path(backend), f"tensor_ops_{backend}_backend"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == f"{backend} has {len(interface.ops)} ops"


def test_headers_are_c99_and_cpp17(tmp_path):
    for header in sorted((INCLUDE / "tensor_ops").glob("*.h")):
        for name, standard in (("cc", "c99"), ("c++", "c++17")):
            compiler = shutil.which(name) or pytest.skip(f"{name} is not installed")
            language = "c" if name == "cc" else "c++"
            checks = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic"]
            command = [compiler, *checks, "-fsyntax-only", "-x", language, header]
            subprocess.run([*command, f"-I{INCLUDE}"], check=True)


def test_structures_are_those_of_the_header(tmp_path):
    """The structs of ctypes are those of the compiler."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler is installed")
    structures = {
        "error": Error, "array": Array, "call": Call, "device": Device, "backend": Backend
    }  # fmt: skip
    lines = ["#include <stdio.h>", "#include <tensor_ops/abi.h>", "int main(void) {"]
    expected = []
    for name, structure in structures.items():
        for field, _ in structure._fields_:
            lines.append(f'printf("%zu\\n", offsetof(tensor_ops_{name}, {field}));')
            expected.append(getattr(structure, field).offset)
        lines.append(f'printf("%zu\\n", sizeof(tensor_ops_{name}));')
        expected.append(ctypes.sizeof(structure))
    program = tmp_path / "offsets"
    command = [compiler, "-std=c99", f"-I{INCLUDE}", "-x", "c", "-", "-o", program]
    subprocess.run(command, input="\n".join([*lines, "return 0; }"]), text=True, check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [int(line) for line in printed.split()] == expected
