"""Decisions by a table of ``tensor-ops tune`` in processes of their own."""

from textwrap import dedent

import pytest

import tensor_ops

TUNE = """
from tensor_ops.__main__ import main
main(["tune", "--ops=silu", "--dtype=float32", "--backends=cpp,python", "--seconds=0.001"])
"""
EXPLAIN = """
import numpy, tensor_ops
print(tensor_ops.explain("silu", numpy.ones(8, "f"), backend="fastest").times["reason"])
"""
# The first of the two is the faster, but their intervals overlap.
WRITE = """
from tensor_ops.config import tuning_table
from tensor_ops.config.tuning_table import Entry, Table
seconds, intervals = {{"cpp": 2.0, "python": 3.0}}, {intervals}
entry = Entry("silu", "float32", (8,), "2026-11-22", seconds, {{}}, intervals)
facts = {{name: tuning_table.backend_facts(name) for name in seconds}}
tuning_table.write(
    tuning_table.default_path(), Table(tuning_table.machine_facts(), facts, (entry,))
)
"""


@pytest.fixture
def cpp(processes):
    if "cpp" not in tensor_ops.get_available_backends():
        pytest.skip("the C++ backend is not available here")
    return processes


def test_a_table_holds_for_one_value_of_the_variable_of_the_instruction_set(cpp):
    cpp.run(TUNE)
    assert cpp.output(EXPLAIN) == "None"
    cpp.environment(CPP_ISA=tensor_ops.backends.load("cpp").module.simd_level)
    done = cpp.run(EXPLAIN)
    assert "the table does not fit: backend 'cpp': variables was None and is" in done.stdout
    assert "TENSOR_OPS_CPP_ISA=" in done.stdout
    cpp.run(TUNE)
    assert cpp.output(EXPLAIN) == "None"
    cpp.environment(CPP_ISA=None)
    assert "and is None; run 'tensor-ops tune' again" in cpp.run(EXPLAIN).stdout


@pytest.mark.parametrize(
    ("intervals", "runs"),
    [
        ({"cpp": (1.9, 2.1), "python": (2.9, 3.1)}, "cpp"),
        ({"cpp": (1.5, 2.9), "python": (2.8, 3.1)}, "python"),
    ],
)
def test_the_order_of_auto_decides_what_is_undecided(cpp, intervals, runs):
    cpp.environment(BACKEND="fastest", BACKEND_PRIORITY="python,cpp")
    cpp.run(WRITE.format(intervals=intervals))
    code = """
        import numpy, tensor_ops
        found = tensor_ops.explain("silu", numpy.ones(8, "f"))
        print(found.backend)
        print(found)
    """
    chosen, *lines = cpp.output(dedent(code)).splitlines()
    assert chosen == runs
    undecided = "; undecided: cpp and python, so the order of 'auto' decides"
    assert any(line.endswith(undecided) for line in lines) is (runs == "python")


def test_the_table_of_the_command_is_the_one_that_is_read(processes):
    processes.environment(BACKEND="fastest", BACKEND_PRIORITY="python")
    words = ["tune", "--ops=silu", "--shape=1x8", "--seconds=0.001"]
    done = processes.run(f"from tensor_ops.__main__ import main; main({words})")
    assert (done.returncode, done.stderr) == (0, "")
    code = """
        import numpy, tensor_ops
        found = tensor_ops.explain("silu", numpy.ones(8, "f"))
        print(found.decided_by, found.mode, found.backend)
        print(*found.times["seconds"], found.times["size"])
    """
    expected = ["TENSOR_OPS_BACKEND fastest python", "python 8"]
    assert processes.output(dedent(code)).splitlines() == expected


def test_who_does_not_ask_for_it_does_not_import_it(processes):
    processes.write(backend_priority=["python"])
    code = "import sys, numpy, tensor_ops; tensor_ops.silu(numpy.ones(3)); "
    code += "print('tensor_ops.config.tuning_table' in sys.modules)"
    assert processes.output(code) == "False"
    processes.environment(BACKEND="fastest")
    assert processes.output(code) == "True"
