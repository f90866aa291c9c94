"""Resources of a GPU that every kernel takes, as the compiler reports them: no GPU is needed."""

import re
from dataclasses import dataclass, replace

import pytest

# Registers of a multiprocessor, and how many of its threads must find room beside one another.
REGISTERS = 65536
LEAST_THREADS = 512
# A multiprocessor has one block of the kernel of decode steps, whose loads are in flight to shared
# memory; ../test_decode_machine_code.py says how many.
DECODE, DECODE_THREADS = "run_steps", 256
# The stack of a function for rare rows, which gets by reference where the row is, and its group.
LARGEST_FRAME = 80


@dataclass(frozen=True)
class Function:
    """A kernel, or a function that kernels call."""

    name: str
    architecture: str
    is_kernel: bool
    stack: int
    spill_stores: int
    spill_loads: int
    registers: int | None = None


@pytest.fixture(scope="module")
def functions(build):
    """The compiler's report of every function, for each architecture."""
    if build.log is None:
        pytest.skip("this wheel was built before, and its build's output is not here")
    return parse(build.log)


def test_every_architecture_has_the_same_kernels(functions, build):
    compiled = [each for each in build.architectures if each.startswith("sm_")]
    kernels = {each: set() for each in compiled}
    for each in functions:
        if each.is_kernel:
            kernels[each.architecture].add(plain(each.name))
    most = max(kernels.values(), key=len)
    for architecture, own in kernels.items():
        assert len(own) >= 12
        has_clusters = int(architecture.removeprefix("sm_")) >= 90
        assert own == most if has_clusters else own <= most


def test_nothing_is_spilled(functions):
    """Registers that do not suffice go to memory, which these kernels keep for their data."""
    spilling = [
        f"{each.architecture} {each.name}: {each.spill_stores} stored, {each.spill_loads} loaded"
        for each in functions
        if each.spill_stores or each.spill_loads
    ]
    assert not spilling, "\n".join(spilling)


def test_no_kernel_has_arrays_in_memory(functions):
    """A larger stack frame is an array that is indexed at run time."""
    framed = [
        f"{each.architecture} {each.name}: {each.stack} bytes"
        for each in functions
        if each.stack > LARGEST_FRAME
    ]
    assert not framed, "\n".join(framed)


def test_registers_leave_room_for_threads(functions):
    """Else too few loads are in flight to keep the memory busy."""
    crowded = [
        f"{each.architecture} {each.name}: {each.registers} registers"
        for each in functions
        if each.registers is not None and each.registers * least_threads(each.name) > REGISTERS
    ]
    assert not crowded, "\n".join(crowded)


def least_threads(name):
    """Return how many threads of a kernel a multiprocessor must find room for."""
    return DECODE_THREADS if DECODE in name else LEAST_THREADS


def plain(name):
    """Return a name without what the compiler adds for each file and run."""
    return re.sub(r"_GLOBAL__N__\w+?_cu_[0-9a-f]{8}_\d+", "", name)


# as pip indents it
REPORT = """\
  ptxas info    : 0 bytes gmem
  ptxas info    : Compiling entry function '_Z5firstPf' for 'sm_90'
  ptxas info    : Function properties for _Z5firstPf
      24 bytes stack frame, 24 bytes spill stores, 48 bytes spill loads
  ptxas info    : Used 70 registers, used 1 barriers, 24 bytes cumulative stack size, 8 bytes smem
  ptxas info    : Function properties for _Z6calledf
      0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
"""


def test_reports_are_read():
    first, called = parse(REPORT)
    assert first == Function("_Z5firstPf", "sm_90", True, 24, 24, 48, 70)
    assert called == Function("_Z6calledf", "sm_90", False, 0, 0, 0)


def parse(report):
    """Return the functions that a report of ``ptxas -v`` tells of."""
    found, architecture, kernel = [], None, None
    blocks = re.split(r"^\s*ptxas info\s*: ", report, flags=re.MULTILINE)
    for block in blocks:
        if match := re.match(r"Compiling entry function '(\S+)' for '(\S+)'", block):
            kernel, architecture = match[1], match[2]
        elif match := re.match(
            r"Function properties for (\S+)\s+(\d+) bytes stack frame, "
            r"(\d+) bytes spill stores, (\d+) bytes spill loads",
            block,
        ):
            name, numbers = match[1], tuple(map(int, match.groups()[1:]))
            found.append(Function(name, architecture, name == kernel, *numbers))
        elif (match := re.match(r"Used (\d+) registers", block)) and found:
            found.append(replace(found.pop(), registers=int(match[1])))
    return found
