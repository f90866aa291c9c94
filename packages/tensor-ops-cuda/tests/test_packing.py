"""Panels of a matrix whose activations are replaced between two of them are shared by warps."""

import ctypes
import shutil

import numpy as np
import pytest
from emulated_kernels import PACKAGE, TESTS, compile_kernels, unsanitized

pytestmark = unsanitized

SOURCES = (
    TESTS / "programs/panel_plans.cpp",
    PACKAGE / "native/decode/executor/packing.cpp",
)
MOST_COLUMNS = {0: 2048, 1: 2048, 2: 512}  # of a panel, by format: q8_0, q4_0, bf16


@pytest.fixture(scope="module")
def plans(made_once):
    compiler = shutil.which("c++") or pytest.skip("c++ is not installed")
    path = made_once(
        "panel plans", "plans.so", lambda path: compile_kernels(compiler, path, SOURCES)
    )
    library = ctypes.CDLL(str(path))
    library.refusal_of.restype = ctypes.c_char_p
    return library


@pytest.mark.parametrize("format_", MOST_COLUMNS)
def test_a_matrix_of_several_panels_is_shared_alike(format_, plans):
    most, warps = MOST_COLUMNS[format_], np.zeros(64, np.int32)
    for rows in (1, 16, 2048, 2112, 16896, 128256):
        for columns in (32, most, most + 1, 2 * most, 9 * most):
            pointer = ctypes.c_void_p(warps.ctypes.data)
            count = plans.plan_of(format_, rows, columns, pointer)
            assert count == -(-columns // most)
            if count > 1:
                assert 2 <= warps[0] <= 8
                assert (warps[:count] == warps[0]).all()


@pytest.mark.parametrize(
    ("log2_warps", "of"),
    [([0, 0], "1, 1"), ([1, 1, 0], "2, 2, 1"), ([2, 1], "4, 2"), ([0, 3], "1, 8")],
)
def test_a_plan_without_shared_tiles_is_refused(log2_warps, of, plans):
    given = np.array(log2_warps, np.int32)
    message = plans.refusal_of(len(given), ctypes.c_void_p(given.ctypes.data))
    assert message.decode() == (
        f"a matrix of {len(given)} panels needs tiles that 2, 4 or 8 warps share, as many in each "
        f"panel; got panels whose tiles are of {of} warps"
    )


@pytest.mark.parametrize("log2_warps", [[0], [3], [1, 1], [3, 3, 3]])
def test_a_plan_of_shared_tiles_is_taken(log2_warps, plans):
    given = np.array(log2_warps, np.int32)
    assert plans.refusal_of(len(given), ctypes.c_void_p(given.ctypes.data)) is None
