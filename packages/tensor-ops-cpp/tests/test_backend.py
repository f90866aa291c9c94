"""The C++ backend's own facts, besides what tests/conformance asks of all backends."""

from pathlib import Path

import numpy as np
import pytest
from cpp_cases import OPS
from pooled import run_in_new_process

import tensor_ops_cpp
from tensor_ops_cpp import _native, compile_program


def test_every_op_is_one_file():
    folder = Path(__file__).parents[1] / "native" / "ops"
    assert {path.stem for path in folder.glob("[!_]*.cpp")} == set(OPS)


@pytest.mark.parametrize(
    ("op", "note"),
    [
        ("rms_norm", "weight may be float32 instead:"),
        ("add_rms_norm", "weight may be float32 instead, and so may residual:"),
        ("layer_norm", "weight and bias may be float32 instead:"),
        ("rope", "cos and sin may be float32 instead:"),
    ],
)
def test_docstring_tells_what_may_be_float32_beside_a_half_x(op, note):
    assert f"Where x is float16 or bfloat16, {note}" in OPS[op].__doc__
    assert ("shape and dtype of residual" in OPS[op].__doc__) == (op == "add_rms_norm")


def test_probe():
    found = {"available": True, "reason": None, "devices": ["cpu"], "kind": "cpu"}
    assert tensor_ops_cpp.probe() == found
    assert tensor_ops_cpp.info()["dtypes"] == ["float32", "float16", "bfloat16", "float64"]


def test_optimization_info_prints_a_line_per_key():
    info = tensor_ops_cpp.get_optimization_info()
    assert isinstance(info, dict)
    assert len(str(info).splitlines()) == len(info)
    assert info["level"] in str(info)
    assert info["level"] == tensor_ops_cpp.simd_level
    assert info["openmp"] is tensor_ops_cpp.has_openmp


def test_configuration_is_what_was_compiled():
    found = dict(word.split("=") for word in tensor_ops_cpp.configuration().split())
    info = tensor_ops_cpp.get_optimization_info()
    assert found["levels"].split(",") == info["compiled_levels"]
    assert found["decode"] == ("on" if info["decode"] else "off")
    assert info["decode"] is tensor_ops_cpp.CAPABILITIES["runs_programs"]


def test_a_build_without_decode_programs_says_so(monkeypatch):
    monkeypatch.setattr(_native, "runs_programs", False)
    assert not tensor_ops_cpp.has_bfloat16_products()
    reason = tensor_ops_cpp.supports_program("{}")
    assert "built without decode programs (TENSOR_OPS_DECODE=OFF)" in reason
    for call in (
        lambda: tensor_ops_cpp.packed_layout("{}"),
        lambda: tensor_ops_cpp.program_memory("{}"),
        lambda: tensor_ops_cpp.packed_checksum(np.zeros(1, np.uint8)),
        lambda: compile_program("{}", {}),
    ):
        with pytest.raises(NotImplementedError, match="build it again without that option"):
            call()


@pytest.mark.parametrize("name", ["TENSOR_OPS_CPP_AMX", "TENSOR_OPS_CPP_WINOGRAD"])
def test_a_switch_of_the_environment_is_0_or_1(name):
    for setting in ("", "0", "1"):
        assert run_in_new_process("import tensor_ops_cpp", **{name: setting}).stderr == ""
    code = "import tensor_ops_cpp as t; print(t.probe()['available'])"
    done = run_in_new_process(code, **{name: "banana"})
    assert f"unavailable: {name} is 'banana', which is neither 0 nor 1" in done.stderr
    assert done.stdout.split() == ["False"]


def test_what_products_use_is_reported():
    info = tensor_ops_cpp.get_optimization_info()
    assert info["decode_products"] in _native.decode_product_variants()
    assert info["decode_products"].split("+")[0] == info["level"]
    assert ("amx" in info["decode_products"]) == info["amx"].startswith("yes")
    note = f"products use {info['decode_products']}; tiles (AMX): {info['amx']}"
    assert tensor_ops_cpp.program_note() == note
    code = "import tensor_ops_cpp as t; print(t.get_optimization_info()['amx'])"
    assert run_in_new_process(code, TENSOR_OPS_CPP_AMX="0").stdout.startswith("no: ")


NO_ROOM = """
import ctypes, tensor_ops_cpp as t
from tensor_ops_cpp import _native
libc = ctypes.CDLL(None, use_errno=True)
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(4096)
stack = Stack(ctypes.addressof(memory), 0, 4096)
assert libc.sigaltstack(ctypes.byref(stack), None) == 0
print("amx" in _native.decode_product_variants()[-1], t.get_optimization_info()["amx"])
"""


@pytest.mark.skipif(
    not tensor_ops_cpp.get_optimization_info()["amx"].startswith("yes")
    or "amx_tile" not in Path("/proc/cpuinfo").read_text(),
    reason="the processor has no tiles",
)
def test_a_thread_whose_signal_stack_has_no_room_for_tiles_goes_on_without_them():
    done = run_in_new_process(NO_ROOM)
    assert done.stdout.startswith("False no: the signal stack"), done.stderr
