"""An op is its files: one more, in a copy of the checkout, is everywhere where an op has to be.

Its file in tensor_ops and its declaration for native backends are those of CONTRIBUTING.md; the
others of OpenCL and CUDA are beside this test. So are those of one more kind of product in decode
programs, which CUDA is built with.
PyTorch has none: its operator, made from the op's own file, runs what a backend has.
"""

import re
import shutil
from pathlib import Path

import pytest

from tensor_ops import backends

ROOT = Path(__file__).parents[2]
CONTRIBUTING = Path("CONTRIBUTING.md")
FILES = {
    "squared_relu/squared_relu.cl": "packages/tensor-ops-opencl/src/tensor_ops_opencl/ops",
    "squared_relu/squared_relu.py": "packages/tensor-ops-opencl/src/tensor_ops_opencl/ops",
    "squared_relu/squared_relu.cu": "packages/tensor-ops-cuda/native/ops",
    "scaled_linear_node/scaled_linear.py": "packages/tensor-ops-decode/src/tensor_ops_decode/nodes",
    "scaled_linear_node/scaled_linear.cuh": "packages/tensor-ops-cuda/native/decode/products",
}
NOT_COPIED = (".*", "__pycache__", "_build", "build", "dist", "shared", "*.so", "*.whl")
# Built without optimization and symbols for a debugger, in half the time.
EMULATION = (
    "-C cmake.define.TENSOR_OPS_CUDA_EMULATION=ON -C cmake.define.TENSOR_OPS_CUDA_OPS=squared_relu "
    "-C cmake.build-type=Debug -C cmake.define.CMAKE_CXX_FLAGS_DEBUG="
)
# The pages that are made from the op table, or from records that do not have the op yet.
PAGES = "tests/docs/test_accuracy.py tests/docs/test_performance.py tests/docs/test_site.py"
# Tests that walk over the op table without a backend to run it on.
WALKS = "packages/tensor-ops/tests tests/docs/test_docstrings.py tests/benchmarks/test_peers.py"
# Random decode programs, with all kinds of products.
PROGRAMS = "packages/tensor-ops-cuda/tests/test_decode_random.py"
OF_TENSORS = """
import torch, tensor_ops_torch
x = torch.linspace(-2, 2, 9)
expected = torch.relu(x) ** 2
assert torch.equal(tensor_ops_torch.squared_relu(x), expected)
compiled = torch.compile(tensor_ops_torch.squared_relu, fullgraph=True, backend="aot_eager")
assert torch.equal(compiled(x), expected)
torch.library.opcheck(torch.ops.tensor_ops.squared_relu.default, (x,))
"""


@pytest.fixture(scope="module")
def reader(read, environment, tmp_path_factory):
    """Someone who has added the op, and sees the packages of a copy of the checkout."""
    place = tmp_path_factory.mktemp("tenth_op")
    copy = place / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    for block in read(CONTRIBUTING):
        if "squared_relu." in block.notes.get("file", ""):
            (copy / block.notes["file"]).write_text(block.code, encoding="utf-8")
    for name, folder in FILES.items():
        shutil.copy(Path(__file__).parent / name, copy / folder)
    sources = sorted(copy.glob("packages/*/src"))
    pure = [path for path in sources if not (path.parent / "CMakeLists.txt").exists()]
    return environment(
        place,
        copy,
        sources=pure,
        variables={"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"},
    )


def run(reader, command):
    done = reader.bash(command)
    assert done.failure is None, done.output
    return done.output


def test_no_test_and_no_page_lists_the_ops(reader):
    run(reader, f"python -m pytest -q {PAGES}")
    passed = run(reader, f"python -m pytest -q {WALKS} -k squared_relu")
    assert re.match(r"\.{10}", passed), passed


def test_pytorch_has_it(reader):
    pytest.importorskip("torch")
    run(reader, f"python - <<'END'{OF_TENSORS}END")


# CUDA's takes a build; in CI, test_contributing.py builds an op for the C++ backend.
@pytest.mark.parametrize("name", ["opencl", pytest.param("cuda", marks=pytest.mark.nightly)])
def test_a_backend_has_it(name, request):
    reason = backends.load(name).reason
    if reason is not None:
        required = name in request.config.getoption("--require-backend")
        (pytest.fail if required else pytest.skip)(f"{name}: {reason}")
    reader = request.getfixturevalue("reader")  # only now, as it takes seconds to make
    if name == "cuda":
        run(reader, "python tools/node_kinds.py")
        run(reader, f"pip install -q --no-deps {EMULATION} ./packages/tensor-ops-cuda")
    only = f"--backend={name} --require-backend={name}"
    passed = run(reader, f"python -m pytest -q tests/conformance -k squared_relu {only}")
    assert re.search(r"^squared_relu +[1-9]\d* / 0 / 0$", passed, re.MULTILINE), passed
    if name == "cuda":
        run(reader, f"python -m pytest -q {PROGRAMS} --require-backend=cuda")
