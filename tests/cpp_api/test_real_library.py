"""The C++ backend's own library: by the methods of C++ every op gives what it gives in Python."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from cpp_programs import COMPILERS

import tensor_ops_cpp as cpp

X = (-3 + 0.25 * np.arange(24, dtype=np.float32)).reshape(3, 8)
OTHER = (1 - 0.125 * np.arange(24, dtype=np.float32)).reshape(3, 8)
WEIGHT = 0.5 + 0.25 * np.arange(8, dtype=np.float32)
HALF = 0.25 + 0.125 * np.arange(4, dtype=np.float32)


def in_place():
    x = X.copy()
    cpp.silu(x[2::-2], out=x[2::-2])
    return x


RESULTS = {
    "rms_norm": lambda: cpp.rms_norm(X, WEIGHT, 1e-3),
    "add_rms_norm": lambda: cpp.add_rms_norm(X, OTHER, WEIGHT)[0],
    "sum": lambda: X + OTHER,
    "layer_norm": lambda: cpp.layer_norm(X, WEIGHT),
    "layer_norm_bias": lambda: cpp.layer_norm(X, WEIGHT, WEIGHT),
    "silu": lambda: cpp.silu(X),
    "gelu": lambda: cpp.gelu(X),
    "gelu_none": lambda: cpp.gelu(X, "none"),
    "silu_mul": lambda: cpp.silu_mul(X, OTHER),
    "gelu_mul_none": lambda: cpp.gelu_mul(X, OTHER, "none"),
    "softmax": lambda: cpp.softmax(X, 0.5),
    "rope": lambda: cpp.rope(X, HALF, HALF),
    "rope_interleaved": lambda: cpp.rope(X, HALF, HALF, interleaved=True),
    "in_place": in_place,
}
REFUSED = {
    "dtype": "TypeError: silu: out must have x's dtype float32, got float64",
    "shape": "ValueError: rms_norm: weight must have shape (8,)",
    "missing": "TypeError: rms_norm: weight is required",
    "negative": "ValueError: rms_norm: eps must be finite and not negative, got -1",
    "overlap": "ValueError: silu: out overlaps x",
    "null": "ValueError: silu: x.data is a null pointer",
    "device": "ValueError: silu: x must be in host memory",
}


@pytest.fixture(scope="module")
def lines(program, tmp_path_factory):
    folder, home = Path(cpp.__file__).parent, tmp_path_factory.mktemp("home")
    variables = {"TENSOR_OPS_BACKEND_PATH": str(folder), "HOME": str(home)}
    done = subprocess.run(
        [program("ops", compiler=COMPILERS[-1])],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_the_library_is_found_and_tells_what_it_is(lines):
    assert lines["cpp"].startswith(f"{cpp.__version__} ")


@pytest.mark.parametrize("name", RESULTS)
def test_every_method_gives_the_bits_that_python_gets(lines, name):
    expected = RESULTS[name]()
    found = np.array([float.fromhex(each) for each in lines[name].split()], dtype=np.float32)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_exceptions(lines, name):
    assert lines[name].startswith(REFUSED[name])
