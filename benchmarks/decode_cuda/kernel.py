"""The kernel of decode steps as the compiler makes it: what its loop over weights takes of a GPU.

A ring step is what a warp multiplies at once: 16 rows of weights. For each type of weights the loop
over steps is found by its tensor-core instructions, and what is counted is the shortest way round
it that passes these and the copies of weights. That is the common way: longer ones begin another
tile or another panel, wait for lanes that went elsewhere, or find no more weights to copy.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from decode_cuda import machine_code
from decode_cuda.machine_code import Function, Loop
from pages import ROOT

__all__ = [
    "ARCHITECTURES",
    "FORMATS",
    "Kernel",
    "RingStep",
    "as_record",
    "compile_kernel",
    "compiler_release",
    "from_record",
    "kernels_of",
    "missing_tool",
]

ARCHITECTURES = (80, 86, 89, 90, 100, 120)
FORMATS = ("BF16", "Q8_0", "Q4_0")
PACKAGE = ROOT / "packages/tensor-ops-cuda"
# As packages/tensor-ops-cuda/CMakeLists.txt compiles the kernels.
OPTIONS = ("-std=c++17", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-cubin")
FOLDERS = (PACKAGE / "native", ROOT / "native", ROOT / "native/include")
# The kernel, and variables that are as large as what is to be known of it.
SOURCE = """\
#include "decode/steps.cu"
using namespace tensor_ops::decode;
extern "C" {
__device__ char size_warps[kBlockWarps];
__device__ char size_shared_3[WeightRing<3>::kBytes + sizeof(BlockMemory)];
__device__ char size_shared_4[WeightRing<4>::kBytes + sizeof(BlockMemory)];
#define FORMAT(name, value) \\
  __device__ char size_bytes_##name[layout_of(WeightFormat::value).bytes()]; \\
  __device__ char size_columns_##name[layout_of(WeightFormat::value).columns]; \\
  __device__ char size_blocks_##name[layout_of(WeightFormat::value).blocks()]; \\
  __device__ char size_panel_##name[panel_columns(WeightFormat::value)];
FORMAT(BF16, kBFloat16)
FORMAT(Q8_0, kQ8_0)
FORMAT(Q4_0, kQ4_0)
}
"""
# The masks of the halves of bytes of Q4_0; the function that makes activations.
HALVES, PREPARE = "0xf0f0f0f0", "prepare_panel"
# How often a kind of load passes through shared memory, which gives 128 bytes a clock.
PASSES = {"LDS": 1, "LDS.U": 1, "LDS.64": 2, "LDS.128": 4}


@dataclass(frozen=True)
class RingStep:
    """A ring step of a type of weights."""

    bytes: int
    columns: int
    panel_columns: int
    instructions: int
    by_opcode: dict[str, int]
    copies: dict[str, int]  # by name
    shared_passes: int
    # Once for the tile of a warp: between the last step and the next tile, without storing.
    join: int
    prepare: int  # four columns of activations for each lane

    @property
    def per_kb(self) -> float:
        """Instructions of a warp for a KB of weights."""
        return self.instructions / self.bytes * 1024


@dataclass(frozen=True)
class Kernel:
    """The kernel with one number of ring slots, for one architecture."""

    architecture: int
    slots: int
    registers: int
    stack: int
    local_accesses: int
    code_bytes: int
    shared_bytes: int
    warps: int
    steps: dict[str, RingStep]

    def in_flight(self, format_: str) -> int:
        """Return the bytes that a block has on their way: a slot of each warp is being read."""
        return (self.slots - 1) * self.warps * self.steps[format_].bytes


def as_record(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel as JSON has it."""
    return asdict(kernel)


def from_record(content: dict[str, Any]) -> Kernel:
    """Return the kernel of which a record tells."""
    steps = {name: RingStep(**step) for name, step in content["steps"].items()}
    return Kernel(**{**content, "steps": steps})


def compiler_release() -> str:
    """Return which compiler is used, such as ``V13.0.88``."""
    found = re.search(r"V[\d.]+", _output([_nvcc() or "nvcc", "--version"]))
    return found[0] if found else "unknown"


def missing_tool() -> str | None:
    """Return what is missing to compile the kernel and to read it, if anything is."""
    if _nvcc() is None:
        return "no nvcc is here: put it on the PATH, or set CUDACXX"
    for name in ("cuobjdump", "nvdisasm"):
        if _tool(name) is None:
            return f"no {name} is here: pip install nvidia-cuda-{name}"
    return None


def compile_kernel(architecture: int, cubin: Path) -> None:
    """Compile the kernel, with three ring slots and with four."""
    source = cubin.with_suffix(".cu")
    source.write_text(SOURCE, encoding="utf-8")
    # As CMake writes it.
    kinds = sorted(path.stem for path in PACKAGE.glob("native/decode/products/*.cuh"))
    lines = [f'#include "decode/products/{kind}.cuh"' for kind in kinds]
    lines.append(f"#define TENSOR_OPS_FOR_EACH_PRODUCT(X) {' '.join(f'X({k})' for k in kinds)}")
    (cubin.parent / "product_files.cuh").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [_nvcc() or "nvcc", *OPTIONS, f"-arch=sm_{architecture}", "-o", str(cubin)]
    _output([*command, *(f"-I{each}" for each in (*FOLDERS, cubin.parent)), str(source)])


def kernels_of(architecture: int, cubin: Path) -> list[Kernel]:
    """Return what has been compiled, as it is read from the machine code."""
    code = _output([_tool("nvdisasm") or "nvdisasm", "-c", str(cubin)])
    dump = _tool("cuobjdump") or "cuobjdump"
    usage = _output([dump, "-res-usage", str(cubin)])
    return read(architecture, code, usage, _output([dump, "-elf", str(cubin)]))


def read(architecture: int, code: str, usage: str, symbols: str) -> list[Kernel]:
    """Return the kernels in what nvdisasm, ``cuobjdump -res-usage`` and ``-elf`` print."""
    found = re.findall(r"\s(0x\w+)\s+OBJECT .* size_(\w+)$", symbols, re.MULTILINE)
    size = {name: int(value, 16) for value, name in found}
    kernels = []
    for function in machine_code.functions(code):
        slots = re.search(r"run_steps.*?Li(\d)E.*TensorCoreSums", function.name)
        used = re.search(rf"Function {re.escape(function.name)}:\s+REG:(\d+) STACK:(\d+)", usage)
        if slots is None or used is None:
            continue
        names = [one.opcode for one in function.instructions]
        kernels.append(
            Kernel(
                architecture,
                int(slots[1]),
                int(used[1]),
                int(used[2]),
                names.count("LDL") + names.count("STL"),
                function.bytes,
                size[f"shared_{slots[1]}"],
                size["warps"],
                {each: _step(function, each, size) for each in FORMATS},
            )
        )
    return sorted(kernels, key=lambda kernel: kernel.slots)


def _step(function: Function, format_: str, size: dict[str, int]) -> RingStep:
    loops = machine_code.loops(function)
    products = _blocks_with_products(function, format_)
    inner = _smallest([each for each in loops if products & each.blocks], f"steps of {format_}")
    products &= inner.blocks
    copies = {n for n in inner.blocks if _count(function, n, "LDGSTS")}
    if format_ == "BF16":  # which has no scales: the copies of the others are passed by
        most = max(_count(function, n, "LDGSTS") for n in copies)
        copies = {n for n in copies if _count(function, n, "LDGSTS") == most}
    way = machine_code.shortest_round(function, inner, products | copies)
    count = sum(one.opcode in ("IMMA", "HMMA") for one in way)
    # An instruction for each block and half of the rows; of BF16 another for the third term.
    steps = count / (size[f"blocks_{format_}"] * (4 if format_ == "BF16" else 2))
    if steps != 1:
        raise ValueError(f"{function.name}: {count} products in the loop of {format_}")
    outer = _smallest([each for each in loops if inner.blocks < each.blocks], "tiles")
    passed = inner.blocks | _inside(loops, outer)
    meeting = {n for n in outer.blocks - passed if _count(function, n, "BAR")}
    join = machine_code.shortest_round(function, outer, meeting)
    return RingStep(
        size[f"bytes_{format_}"],
        size[f"columns_{format_}"],
        size[f"panel_{format_}"],
        len(way),
        dict(Counter(one.opcode for one in way).most_common()),
        dict(Counter(one.name for one in way if one.opcode == "LDGSTS")),
        sum(PASSES.get(one.name, 0) for one in way if one.predicate != "!PT"),
        len(join),
        _prepare(function, loops, format_),
    )


def _blocks_with_products(function: Function, format_: str) -> set[int]:
    found = set()
    for number, block in enumerate(function.blocks):
        names = {one.opcode for one in block.instructions}
        has_halves = any(HALVES in one.operands for one in block.instructions)
        of_block = "BF16" if "HMMA" in names else "Q4_0" if has_halves else "Q8_0"
        if names & {"IMMA", "HMMA"} and of_block == format_:
            found.add(number)
    return found


def _prepare(function: Function, loops: list[Loop], format_: str) -> int:
    """Count what makes four columns of activations: integers, or else numbers of bfloat16.

    Only of integers lanes exchange their largest magnitudes. Either way there is a block with
    stores, to memory or to shared memory.
    """

    def stores(number: int) -> int:
        return _count(function, number, "ST") + _count(function, number, "STS")

    exchanges = {n for n in range(len(function.blocks)) if _count(function, n, "SHFL")}
    around = [
        each
        for each in loops
        if PREPARE in function.blocks[each.head].function
        and exchanges & each.blocks
        and any(map(stores, each.blocks))
    ]
    loop = _smallest(around, "activations")
    behind = machine_code.reachable(function, loop, exchanges & loop.blocks)
    its = loop.blocks - behind if format_ == "BF16" else behind
    return len(machine_code.shortest_round(function, loop, {max(its, key=stores)}))


def _smallest(loops: Iterable[Loop], what: str) -> Loop:
    found = min(loops, key=lambda loop: len(loop.blocks), default=None)
    if found is None:
        raise ValueError(f"the kernel has no loop over {what}")
    return found


def _inside(loops: list[Loop], outer: Loop) -> frozenset[int]:
    return frozenset().union(*(each.blocks for each in loops if each.blocks < outer.blocks))


def _count(function: Function, number: int, opcode: str) -> int:
    return sum(one.opcode == opcode for one in function.blocks[number].instructions)


def _nvcc() -> str | None:
    usual = Path("/usr/local/cuda/bin/nvcc")
    found = os.environ.get("CUDACXX") or shutil.which("nvcc")
    return found or (str(usual) if usual.exists() else None)


def _tool(name: str) -> str | None:
    """Return a tool of the toolkit, or that of PyPI's package."""
    scripts = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin", name)
    usual = Path("/usr/local/cuda/bin", name)
    found = shutil.which(name)
    return found or next((str(path) for path in (scripts, usual) if path.exists()), None)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stderr}")
    return done.stdout
