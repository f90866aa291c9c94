"""Limits of `tensor_ops_opencl` on the CPU: PoCL's launches, and the instructions it compiles to.

    python benchmarks/opencl_limits.py [--json benchmarks/results/opencl_limits.json]
    python benchmarks/opencl_limits.py --report benchmarks/results/opencl_limits.json

Times a launch alone (an empty kernel, awaited), a launch whose result is mapped, and calls of one
row, which can be no quicker. For large arrays it times every op beside `tensor_ops_cpp` at each
instruction-set level: PoCL compiles for the CPU that its LLVM knows, which the device's version
ends with, and where that has no AVX-512 the level to compare with is x86-64-v3.
"""

import argparse
import datetime
import functools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pages
from comparison import cases, opencl
from comparison.record import Elsewhere
from harness import command
from records import write_json

Ops = Mapping[str, Callable[..., Any]]

ROUNDS = 9
ONE_ROW, FEW_ROWS = (1, 4096), (128, 4096)
LARGE = {(2048, 4096): ("float32", "float16", "bfloat16", "float64"), (8192, 8192): ("float32",)}


def main() -> None:
    """Measure, print and keep."""
    parser = command.parser(__doc__)
    parser.add_argument("--report", type=Path, help="show kept figures on the page, and no more")
    parser.add_argument("--level", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        made = opencl.blocks(opencl.read(options.report), opencl.read(opencl.CALLS))
        pages.update(opencl.PAGE, made)
    elif options.level:
        print(json.dumps(beside_cpp()))
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Take all figures."""
    from tensor_ops_opencl import contexts

    elsewhere = Elsewhere()
    found: dict[str, Any] = {
        "device": str(contexts.current().device),
        "setting": setting(),
        "launch_us": launches(),
        "one_row_us": one_row(),
        "beside_numpy": beside_numpy(),
        "beside_cpp": {
            level: command.figures_of(__file__, "--level", level, TENSOR_OPS_CPP_ISA=level)
            for level in opencl.LEVELS
        },
    }
    found["busy_elsewhere"] = elsewhere.cores()
    print(json.dumps(found, indent=1))
    write_json(options.json, found)


def setting() -> dict[str, Any]:
    """Return what the figures depend on."""
    from tensor_ops import machine
    from tensor_ops_opencl import contexts

    facts, handle = machine.facts(), contexts.current().device.handle
    return {
        "cpu": facts["cpu"],
        "cores": facts["usable_cpus"],
        "platform": handle.platform.version.strip(),
        "compiles_for": handle.version.strip(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def launches() -> dict[str, float]:
    """Return the time of launches that do nothing."""
    import pyopencl as cl

    from tensor_ops_opencl import contexts

    here = contexts.current()
    queue = here.queue()
    program = cl.Program(here.handle, "kernel void nothing(global float* x) {}").build()
    kernel = cl.Kernel(program, "nothing")
    memory = np.zeros(4096, np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffer = cl.Buffer(here.handle, flags, hostbuf=memory)
    kernel.set_args(buffer)

    def awaited() -> None:
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        queue.finish()

    def mapped() -> None:
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        array, _ = cl.enqueue_map_buffer(
            queue, buffer, cl.map_flags.READ, 0, (16384,), np.uint8, is_blocking=False
        )
        array.base.release(queue)
        queue.finish()

    return {"kernel": microseconds(awaited, 300), "kernel and mapping": microseconds(mapped, 300)}


def one_row() -> dict[str, float]:
    """Return the time of calls of one row."""
    import tensor_ops_opencl

    return {
        name: microseconds(functools.partial(call, tensor_ops_opencl.ops), 300)
        for name, call in calls(ONE_ROW, "float32").items()
    }


def beside_numpy() -> list[dict[str, Any]]:
    """Return the times of every op in turn with NumPy's, a few rows each."""
    import tensor_ops_opencl
    from tensor_ops.ops import OPS

    numpy = {name: op.numpy for name, op in OPS.items()}
    return in_turn("numpy", numpy, tensor_ops_opencl.ops, FEW_ROWS, ("float32",))


def beside_cpp() -> list[dict[str, Any]]:
    """Return the times of every op in turn with C++'s, for large arrays."""
    import tensor_ops_cpp
    import tensor_ops_opencl

    return [
        row
        for shape, dtypes in LARGE.items()
        for row in in_turn("cpp", tensor_ops_cpp.ops, tensor_ops_opencl.ops, shape, dtypes)
    ]


def in_turn(
    name: str, other: Ops, opencl: Ops, shape: tuple[int, ...], dtypes: Sequence[str]
) -> list[dict[str, Any]]:
    """Return both medians, and how many times the other's throughput OpenCL has."""
    rows = []
    for dtype in dtypes:
        for variant, call in calls(shape, dtype).items():
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                for ops, each in zip((opencl, other), times, strict=True):
                    each.append(seconds(functools.partial(call, ops), 3))
            mine, theirs = map(statistics.median, times)
            rows.append(
                {
                    "op": variant,
                    "dtype": dtype,
                    "shape": shape,
                    "opencl_us": round(1e6 * mine, 1),
                    f"{name}_us": round(1e6 * theirs, 1),
                    "ratio": round(theirs / mine, 2),
                }
            )
    return rows


def calls(shape: tuple[int, ...], dtype: str) -> dict[str, Callable[[Ops], Any]]:
    """Return a function from a backend's ops to the result of each variant of each op."""

    def call(name: str, values: list[Any], ops: Ops) -> Any:
        variant = cases.VARIANTS[name]
        return ops[variant.op.name](*values, **variant.options)

    return {
        name: functools.partial(
            call,
            name,
            list(cases.arguments(cases.Case(name, dtype, shape, 2, cases.ALLOCATED)).values()),
        )
        for name, variant in cases.VARIANTS.items()
        if variant.op.derivative_of is None  # OpenCL has no derivatives
    }


def microseconds(call: Callable[[], Any], count: int) -> float:
    """Return the median time of a call."""
    return round(1e6 * statistics.median(seconds(call, count) for _ in range(ROUNDS)), 1)


def seconds(call: Callable[[], Any], count: int) -> float:
    call()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    main()
