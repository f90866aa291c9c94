"""Loops over blocks in products of integers keep no vectors on the stack."""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tensor_ops_cpp

JUMP = re.compile(r"\s*([0-9a-f]+):\s+j\w+\s+([0-9a-f]+)")
ADDRESS = re.compile(r"\s*([0-9a-f]+):")
# Nothing else multiplies bytes. A loop without vectors of 32 bytes is of a level below v3.
PRODUCT = re.compile(r"vpmaddubsw|vpmaddwd|vpdpbusd|vpdpwssd")
WIDE = re.compile(r"%[yz]mm")
SETS_FRAME = re.compile(r"mov\s+%rsp,%rbp|lea\s+[^ ]*\(%rsp\),%rbp")
RETURN = re.compile(r":\s+ret")
FEWEST_PRODUCTS = 8  # of a block of 32 columns

pytestmark = [
    pytest.mark.unsanitized,
    pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="reads x86-64"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed"),
]


def library():
    (path,) = Path(tensor_ops_cpp.__file__).parent.glob("**/libtensor_ops_cpp.so")
    return path


def inner_loops(lines):
    """Each loop that holds no other one, as the places of its first and last instruction."""
    place = {}
    last_begin = -1
    for i, line in enumerate(lines):
        if found := ADDRESS.match(line):
            place[found[1]] = i
        if (found := JUMP.match(line)) and place.get(found[2], -1) > last_begin:
            last_begin = place[found[2]]
            if not any(RETURN.search(x) for x in lines[last_begin:i]):
                yield last_begin, i


def on_the_stack(lines, begin, end):
    """The instructions of a loop that read or write whole vectors on the stack."""
    function = begin
    while function > 0 and not RETURN.search(lines[function]):
        function -= 1
    has_frame = any(SETS_FRAME.search(line) for line in lines[function:begin])
    stack = re.compile(r"\(%r(sp|bp)[,)]" if has_frame else r"\(%rsp[,)]")
    body = lines[begin : end + 1]
    return [x for x in body if stack.search(x) and re.search("mm", x) and "broadcast" not in x]


def test_no_vector_is_spilled_in_a_loop_over_blocks():
    command = ["objdump", "-d", "--no-show-raw-insn", str(library())]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = code.splitlines()
    found = 0
    for begin, end in inner_loops(lines):
        body = lines[begin : end + 1]
        products = sum(bool(PRODUCT.search(line) and WIDE.search(line)) for line in body)
        if products < FEWEST_PRODUCTS:
            continue
        found += 1
        assert not on_the_stack(lines, begin, end), "\n".join(body)
    has_wide = set(tensor_ops_cpp.get_optimization_info()["compiled_levels"]) - {"x86-64-v2"}
    assert (found > 0) == bool(has_wide)
