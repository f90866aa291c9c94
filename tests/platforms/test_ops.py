"""Every op and dtype by the C interface on another system: right, and with the bits of this one."""

import numpy as np
import pytest

import call_files
from c_interface import Interface
from calls import LAYOUTS, case, check, choices, draw_arguments, fits
from tensor_ops.ops import OPS

DTYPES = ["float32", "float16", "bfloat16", "float64"]
SHAPES = [(1,), (2,), (3, 6), (5, 64), (3, 130), (2, 1, 1026), (1, 40000), (300, 16), (0, 4)]
# Which four threads share.
LARGE = (256, 1024)


def drawn(op, dtype):
    """Return the cases of an op: their names and arguments."""
    found = [
        (f"sample {sample.name!r}", sample.values(op, dtype))
        for sample in op.samples
        if dtype in sample.dtypes and "cpp" not in sample.not_for
    ]
    for kwargs in choices(op):
        for shape in filter(lambda shape: fits(op, shape), SHAPES):
            name = f"shape {shape}"
            found.append((f"{name} {kwargs}", draw_arguments(op, shape, dtype, name) | kwargs))
        for layout, laid_out in LAYOUTS.items():
            plain = draw_arguments(op, (3, 4, 70), dtype, f"layout {layout}")
            values = {name: laid_out(value) for name, value in plain.items()}
            found.append((f"layout {layout} {kwargs}", values | kwargs))
    return found


@pytest.fixture(scope="module")
def interface():
    """What the C interface says of the parameters of ops; it is the same everywhere."""
    return Interface("cpp")


@pytest.fixture
def made(program, tmp_path):
    """A function that has a system make calls, and returns the bytes of all results."""

    def make(system, level, calls, threads=1, num_threads=1):
        given, found = tmp_path / "calls", tmp_path / f"results of {system.name}"
        given.write_bytes(b"".join(calls))
        variables = {"TENSOR_OPS_CPP_ISA": level}
        words = [system.library, "tensor_ops_cpp_backend", given, found]
        words = [system.path(each) if "/" in str(each) else each for each in words]
        printed = system.run(program("run_calls", system), *words, threads, **variables).stdout
        assert printed.splitlines()[-1] == f"{len(calls)} calls"
        return found.read_bytes()

    return make


def judged(op, cases, data):
    """Assert that results are within the bounds of their op, and that these are all."""
    for name, values in cases:
        with case(name):
            results, data = call_files.results(op, values, data)
            check(op, "cpp", values, results if op.outputs > 1 else results[0])
    assert data == b""


@pytest.mark.parametrize("name", OPS)
def test_results_are_right_and_have_the_bits_of_this_system(
    name, level, system, here, interface, made
):
    op, cases = OPS[name], []
    for dtype in DTYPES:
        cases += drawn(op, dtype)
    parameters = interface.parameters(name)
    calls = [call_files.call(parameters, name, values) for _, values in cases]
    data = made(system, level, calls)
    if level in here.levels:
        assert data == made(here, level, calls)
    if level == system.levels[-1]:  # the bits of the others are of this system, where all is judged
        judged(op, cases, data)


@pytest.mark.parametrize("name", OPS)
def test_four_threads_get_the_bits_of_one(name, level, system, interface, made):
    """Threads of the library in each call, and four threads that make the calls at once."""
    op = OPS[name]
    cases = [("large", draw_arguments(op, LARGE, dtype, "threads")) for dtype in DTYPES]
    parameters = interface.parameters(name)
    alone, shared = (
        [call_files.call(parameters, name, values, count) for _, values in cases]
        for count in (1, 4)
    )
    expected = made(system, level, alone)
    if level == system.levels[-1]:
        judged(op, cases, expected)
    assert made(system, level, shared) == expected
    assert made(system, level, shared, threads=4) == expected


def test_mixed_dtypes(level, system, interface, made):
    values = {
        "x": np.linspace(-3, 3, 60).reshape(3, 20).astype(np.float16),
        "weight": np.linspace(0, 1, 20, dtype=np.float32),
        "eps": 0.5,
    }
    call = call_files.call(interface.parameters("rms_norm"), "rms_norm", values)
    judged(OPS["rms_norm"], [("mixed", values)], made(system, level, [call]))


@pytest.mark.parametrize("wrong", ["sse9", "sve", "x86-64-v9"])
def test_a_level_that_is_none_is_refused_by_name(wrong, system, program, tmp_path):
    (tmp_path / "calls").write_bytes(b"")
    library, calls, found = map(
        system.path, (system.library, tmp_path / "calls", tmp_path / "results")
    )
    words = [library, "tensor_ops_cpp_backend", calls, found]
    done = system.run(program("run_calls"), *words, check=False, TENSOR_OPS_CPP_ISA=wrong)
    assert done.returncode == 1
    says = f"TENSOR_OPS_CPP_ISA is '{wrong}', which is not a level; the valid ones are: "
    assert says + system.levels[0] in done.stderr
