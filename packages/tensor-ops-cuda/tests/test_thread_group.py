"""The bodies of ops compute rows for any group: of threads, memory and a barrier of its own."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
from emulated_kernels import GRID, compile_kernels, unsanitized

import tensor_ops_cuda

PROGRAM = Path(__file__).parent / "programs/rows_of_groups.cpp"
BODIES = ("softmax", "layer_norm", "rms_norm", "rope")
GROUPS, ROWS = 4, 6
SCALE, LAYER_NORM_EPS, RMS_NORM_EPS = 0.5, 1e-5, 1e-6

pytestmark = [pytest.mark.usefixtures("runtime"), unsanitized]


class Problem(ctypes.Structure):
    """As the program has it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "cos", "sin", "y", "tasks")),
        *((name, ctypes.c_int) for name in ("num_tasks", "rows", "n", "groups", "lanes")),
        *((name, ctypes.c_double) for name in ("scale", "layer_norm_eps", "rms_norm_eps")),
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A kernel of the tests, emulated like those of the package."""
    compiler = shutil.which("c++") or pytest.skip("c++ is not installed")
    library = tmp_path_factory.mktemp("program") / "rows.so"
    compile_kernels(compiler, library, (PROGRAM, *GRID))
    return ctypes.CDLL(str(library))


def lanes_of(n, dtype):
    """Return how many threads the ops give a row, which decides the order of its sums."""
    vectors = -(-n // (16 // np.dtype(dtype).itemsize))
    return 1 << (-(-vectors // 4) - 1).bit_length()


def expected(body, x, weight, bias, cos, sin):
    if body == "softmax":
        return tensor_ops_cuda.softmax(x, SCALE)
    if body == "layer_norm":
        return tensor_ops_cuda.layer_norm(x, weight, bias, LAYER_NORM_EPS)
    if body == "rms_norm":
        return tensor_ops_cuda.rms_norm(x, weight, RMS_NORM_EPS)
    return tensor_ops_cuda.rope(x, cos, sin)


@pytest.mark.parametrize("n", [1000, 2002])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_results_are_those_of_the_ops(dtype, n, program, rng):
    """Also of rows that need more barriers than those of the other groups."""
    x = rng.standard_normal((ROWS, n)).astype(dtype)
    if dtype == "float32":
        x[1] *= 1e30
    x[3] = 0
    weight, bias = rng.standard_normal((2, n)).astype(dtype)
    cos, sin = rng.standard_normal((2, ROWS, n // 2)).astype(dtype)
    tasks = [(body, row) for body in range(len(BODIES)) for row in range(ROWS)]
    tasks = np.array(rng.permutation(tasks), np.int32)
    y = np.zeros((len(BODIES), ROWS, n), dtype)
    arrays = (x, weight, bias, cos, sin, y, tasks)
    problem = Problem(
        *(array.ctypes.data for array in arrays),
        len(tasks), ROWS, n, GROUPS, lanes_of(n, dtype), SCALE, LAYER_NORM_EPS, RMS_NORM_EPS,
    )  # fmt: skip
    getattr(program, f"run_{dtype}")(ctypes.byref(problem))
    for body, found in zip(BODIES, y, strict=True):
        right = expected(body, x, weight, bias, cos, sin)
        assert found.tobytes() == right.tobytes(), body
