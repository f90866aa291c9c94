"""Every compiled level that this CPU has, by name, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tensor_ops_cpp

LEVELS = tensor_ops_cpp.get_optimization_info()["compiled_levels"]
CPU_LEVELS = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
HERE = Path(__file__).parent


def run(level, *arguments):
    environment = {**os.environ, "TENSOR_OPS_CPP_ISA": level}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_cpu_levels_are_compiled_levels_in_order():
    assert [level for level in LEVELS if level in CPU_LEVELS] == CPU_LEVELS
    assert tensor_ops_cpp.simd_level in CPU_LEVELS


# The tests run on the level in use anyway; of their thousands on others, a sample with every op and
# dtype takes seconds.
@pytest.mark.parametrize("level", [x for x in CPU_LEVELS if x != tensor_ops_cpp.simd_level])
def test_level_keeps_every_promise(level, request):
    names = ["arrays", "exp", "ops_*", "plan", "streaming_stores"]
    files = [str(path) for name in names for path in sorted(HERE.glob(f"test_{name}.py"))]
    sample = [] if request.config.getoption("--nightly") else ["--every=7"]
    done = run(level, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files, *sample)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize("level", CPU_LEVELS)
def test_attributes_say_what_the_level_uses(level):
    code = "import tensor_ops_cpp as t\n"
    code += "print(t.simd_level, t.has_sse4_2, t.has_avx2, t.has_fma, t.has_avx512)"
    words = run(level, "-c", code).stdout.split()
    if level.startswith("x86"):
        has_avx2, has_avx512 = level >= "x86-64-v3", level >= "x86-64-v4"
        assert words == [level, "True", str(has_avx2), str(has_avx2), str(has_avx512)]
    else:
        assert words[0] == level


@pytest.mark.parametrize("level", CPU_LEVELS)
def test_instructions_for_bfloat16_products_are_those_of_the_level(level):
    code = "import tensor_ops_cpp as t; print(t.has_bfloat16_products())"
    code += "; print(t.get_optimization_info()['decode_products'])"
    has_them, products = run(level, "-c", code).stdout.split()
    assert products.partition("+")[0] == level
    assert has_them == str("bf16" in products)
    assert level not in ("x86-64-v2", "x86-64-v3") or has_them == "False"


UNAVAILABLE = """
import numpy as np, tensor_ops_cpp as t
reason = t.probe()["reason"]
print(t.probe()["available"], t.simd_level, t.supports("silu", "float32", "cpu") == reason)
print(reason)
print(t.get_optimization_info()["level"], t.info()["available"])
try:
    t.silu(np.ones(3))
except RuntimeError as error:
    print(error)
"""


def test_unknown_level_names_the_valid_ones():
    done = run("avx9", "-c", UNAVAILABLE)
    assert done.returncode == 0, done.stderr
    first, reason, third, error = done.stdout.splitlines()
    assert first == "False None True"
    assert third == "None False"
    assert "TENSOR_OPS_CPP_ISA is 'avx9'" in reason
    assert all(level in reason for level in LEVELS)
    assert reason in error
    assert f"RuntimeWarning: tensor_ops_cpp is unavailable: {reason}" in done.stderr


def test_levels_that_the_cpu_lacks():
    for level in set(LEVELS) - set(CPU_LEVELS):
        reason = run(level, "-c", UNAVAILABLE).stdout.splitlines()[1]
        assert "this CPU lacks" in reason
        assert all(other in reason for other in CPU_LEVELS)
