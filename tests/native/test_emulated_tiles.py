"""Products with the tiles of AMX, whose instructions are emulated: on any processor with AVX-512.

They are compared with the other products of the level, of a few formats that differ in what a block
has. `nox -s sanitize` has those of every format.
"""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tensor_ops_cpp

PACKAGE = Path(__file__).parents[2] / "packages" / "tensor-ops-cpp"
PRODUCTS = PACKAGE / "native" / "decode" / "products"
BASE = [PACKAGE / "tests" / "native" / "check_products.cpp", PACKAGE / "native/isa/isa.cpp"]
BASE += [PRODUCTS / "product.cpp", PRODUCTS / "variants.cpp"]
NUMBERS, INTEGERS = ["formats/bf16"], ["formats/q4_1", "formats/q6_K"]
# What is compiled for a variant, and how.
VARIANTS = {
    "x86_64_v4": (NUMBERS + INTEGERS, []),
    "x86_64_v4_vnni": ([*INTEGERS, "unpacked/multiply"], ["-DTENSOR_OPS_INTEGERS_ONLY"]),
    "x86_64_v4_bf16": (NUMBERS, ["-mavx512bf16"]),
    "x86_64_v4_amx": (
        [*NUMBERS, *INTEGERS, "tile_int8/multiply"],
        ["-DTENSOR_OPS_TILES", "-DTENSOR_OPS_EMULATE_TILES"],
    ),
}
LEFT_OUT = ("x86_64_v2", "x86_64_v3", "x86_64_v3_vnni")
OPTIONS = ["-std=c++17", "-O1", "-w", "-ffp-contract=off"]
OPTIONS += ["-fno-math-errno", "-fno-trapping-math", f"-I{PACKAGE}/native"]
OPTIONS += [f"-I{PACKAGE.parents[1]}/native", f"-I{PACKAGE.parents[1]}/native/include"]
OPTIONS += [f"-DTENSOR_OPS_WITHOUT_{name}" for name in LEFT_OUT]


def compilations():
    """Yield what is compiled, each of some sources as one, since they read the same headers."""
    yield ["-DTENSOR_OPS_EMULATE_TILES"], BASE
    yield [], [PRODUCTS / f"{name}.cpp" for name in NUMBERS + INTEGERS]
    for variant, (names, flags) in VARIANTS.items():
        march = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
        march += [] if variant == "x86_64_v4" else ["-mavx512vnni"]
        level = f"-DTENSOR_OPS_LEVEL={variant}"
        yield [*march, *flags, level], [PRODUCTS / f"{name}.cpp" for name in names]


PRODUCTS_IN_USE = tensor_ops_cpp.get_optimization_info()["decode_products"] or ""


@pytest.mark.skipif(
    not PRODUCTS_IN_USE.startswith("x86-64-v4+vnni+bf16")
    or shutil.which(os.environ.get("CXX", "g++")) is None,
    reason="needs AVX-512 with VNNI and BF16, and a compiler",
)
def test_emulated_tiles_have_the_right_bits(tmp_path):
    compiler = os.environ.get("CXX", "g++")

    def compiled(numbered):
        number, (options, sources) = numbered
        together, to = tmp_path / f"{number}.cpp", tmp_path / f"{number}.o"
        together.write_text("".join(f'#include "{each}"\n' for each in sources), "utf-8")
        command = [compiler, *OPTIONS, *options, together, "-c", "-o", to]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return to

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, enumerate(compilations())))
    program = tmp_path / "check_products"
    subprocess.run([compiler, *objects, "-o", program], check=True)
    done = subprocess.run(
        [program, "x86-64-v4+vnni+bf16+amx"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "products have the right bits" in done.stdout
