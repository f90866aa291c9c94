"""Registers, memory and instructions of the decode kernel, read from its code: no GPU is needed.

Where a number here is exceeded, the kernel is slower than docs/decode_cuda_predictions.md says.
"""

import pytest

from decode_cuda import kernel, machine_code
from decode_cuda.gpus import GPUS

# Hopper: the source is the same for the others, and each is as long to compile.
ARCHITECTURES = [
    pytest.param(each, marks=[] if each == 90 else pytest.mark.nightly)
    for each in kernel.ARCHITECTURES
]
# Instructions of a warp for 1024 bytes of weights.
MOST_INSTRUCTIONS = {"Q4_0": 150, "Q8_0": 110, "BF16": 60}
# NVIDIA does not say how large the caches of instructions are; others measured 128 KB on sm_70.
MOST_CODE = 100 * 1024
# Multiples of the loads in flight that a GPU's bandwidth needs: above 1 is in reserve for waits.
IN_FLIGHT = {"A100-80": 2, "H100-SXM": 2, "H200": 1, "B200": 1, "RTX 4090": 2}
REGISTERS, LARGEST_BLOCK = 65536, 99 * 1024


@pytest.fixture(scope="module", params=ARCHITECTURES)
def kernels(request, made_once):
    """The kernel with three ring slots and with four, for one architecture."""
    if missing := kernel.missing_tool():
        pytest.skip(missing)
    architecture = request.param
    cubin = made_once(
        f"decode kernel for {architecture}",
        "steps.cubin",
        lambda path: kernel.compile_kernel(architecture, path),
    )
    found = kernel.kernels_of(architecture, cubin)
    assert [each.slots for each in found] == [3, 4]
    return found


def test_nothing_is_in_local_memory(kernels):
    """Neither registers that did not suffice, nor arrays that are indexed at run time."""
    assert [(each.local_accesses, each.stack) for each in kernels] == [(0, 0), (0, 0)]


def test_weights_are_copied_16_bytes_at_a_time(kernels):
    for each in kernels:
        for step in each.steps.values():
            assert all(name.endswith(".128") for name in step.copies), step.copies
            # A body of 2048 bytes for 32 lanes, and once the scales.
            assert sum(step.copies.values()) in (4, 5)


def test_a_kb_of_weights_takes_few_instructions(kernels):
    for each in kernels:
        found = {name: step.per_kb for name, step in each.steps.items()}
        assert {name: n for name, n in found.items() if n > MOST_INSTRUCTIONS[name]} == {}


def test_the_code_fits_the_cache_of_instructions(kernels):
    assert max(each.code_bytes for each in kernels) <= MOST_CODE


def test_a_multiprocessor_has_a_block(kernels):
    """There is one block of eight warps by intent: bytes in flight do what occupancy would."""
    for each in kernels:
        assert each.warps == 8
        assert each.registers * each.warps * 32 <= REGISTERS
    assert kernels[0].shared_bytes <= LARGEST_BLOCK


def test_enough_is_in_flight_for_the_bandwidth(kernels):
    shared_bytes = {each.slots: each.shared_bytes for each in kernels}
    for gpu in GPUS:
        if gpu.architecture != kernels[0].architecture:
            continue
        (used,) = (each for each in kernels if each.slots == gpu.slots(shared_bytes))
        for format_ in kernel.FORMATS:
            wanted = IN_FLIGHT[gpu.name] * gpu.wanted_in_flight
            assert used.in_flight(format_) >= wanted, (gpu.name, format_)


# As nvdisasm prints it: a loop that skips a load and ends with a call that never returns.
CODE = """
	.section	.text.kernel,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=8"
kernel:
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   ISETP.NE.AND P0, PT, R2, RZ, PT ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/                   LDG.E R3, [R4.64] ;
        /*0040*/                   LDG.E R5, [R4.64+0x4] ;
.L_x_1:
        /*0050*/                   IMMA.16832.S8.S8 R8, R8.ROW, R3.COL, RZ ;
        /*0060*/               @P1 CALL.REL.NOINC `(.L_x_0) ;
        /*0070*/                   BRA.DIV ~URZ, `(.L_x_0) ;
        /*0080*/                   EXIT ;
	.section	.nv.info,"",@"SHT_CUDA_INFO"
"""


def test_loops_are_read_from_the_text():
    (function,) = machine_code.functions(CODE)
    assert (function.name, function.bytes) == ("kernel", 9 * 16)
    (loop,) = machine_code.loops(function)
    product = next(
        n for n, block in enumerate(function.blocks) if block.instructions[0].opcode == "IMMA"
    )
    way = machine_code.shortest_round(function, loop, {product})
    assert [one.opcode for one in way] == ["ISETP", "BRA", "IMMA", "CALL"]
    loads = {product - 1, product}
    assert len(machine_code.shortest_round(function, loop, loads)) == 6
    with pytest.raises(ValueError, match="no way round the loop"):
        machine_code.shortest_round(function, loop, {0})
