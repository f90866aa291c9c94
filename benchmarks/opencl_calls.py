"""Overhead of a `tensor_ops_opencl` call beside its kernels, on every OpenCL driver for the CPU.

    python benchmarks/opencl_calls.py [--json benchmarks/results/opencl_calls.json]
    python benchmarks/opencl_calls.py --report benchmarks/results/opencl_calls.json

Each driver is measured in a process of its own: a launch alone, making a buffer of the caller's
memory in the ways that OpenCL has for it, and calls of one and of a few rows beside NumPy's.
"""

import argparse
import datetime
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

import opencl_limits
import pages
from comparison import opencl
from comparison.record import Elsewhere
from harness import command
from records import write_json
from tensor_ops import machine

PAGE_SIZE = 4096
#: How far behind the beginning of a page an allocator may put an array.
WITHIN_A_PAGE = 64


def main() -> None:
    """Measure, print and keep."""
    parser = command.parser(__doc__)
    parser.add_argument("--report", type=Path, help="show kept figures on the page, and no more")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        made = opencl.blocks(opencl.read(opencl.LIMITS), opencl.read(options.report))
        pages.update(opencl.PAGE, made)
    elif options.here:
        print(json.dumps(of_this_device()))
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Take the figures of every driver."""
    import tensor_ops_opencl

    facts, elsewhere = machine.facts(), Elsewhere()
    devices = [each.index for each in tensor_ops_opencl.devices() if each.kind == "cpu"]
    found = {
        "cpu": facts["cpu"],
        "cores": facts["usable_cpus"],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "devices": [
            command.figures_of(__file__, "--here", TENSOR_OPS_OPENCL_DEVICE=index)
            for index in devices
        ],
        "busy_elsewhere": elsewhere.cores(),
    }
    print(json.dumps(found, indent=1))
    write_json(options.json, found)


def of_this_device() -> dict[str, Any]:
    """Return the figures of the device that this process uses."""
    from tensor_ops_opencl import contexts

    platform = contexts.current().device.handle.platform
    return {
        "driver": platform.name.strip(),
        "version": platform.version.strip(),
        "launch_us": opencl_limits.launches(),
        "buffer_us": buffers(),
        "one_row_us": opencl_limits.one_row(),
        "few_rows": opencl_limits.beside_numpy(),
    }


def buffers() -> dict[str, float]:
    """Return the time of making a buffer of the memory of a few rows."""
    import pyopencl as cl

    from tensor_ops_opencl import contexts

    context = contexts.current().handle
    size = 4 * opencl_limits.FEW_ROWS[0] * opencl_limits.FEW_ROWS[1]
    memory = np.zeros(size + 2 * PAGE_SIZE, np.uint8)
    page = -memory.__array_interface__["data"][0] % PAGE_SIZE
    flags = cl.mem_flags

    def make(access: int, start: int) -> None:
        cl.Buffer(context, access | flags.USE_HOST_PTR, hostbuf=memory[start : start + size])

    ways = {
        "read-only, at a page": (flags.READ_ONLY, page),
        "read-only, within a page": (flags.READ_ONLY, page + WITHIN_A_PAGE),
        "unsaid, within a page": (0, page + WITHIN_A_PAGE),
    }
    return {
        name: opencl_limits.microseconds(functools.partial(make, *way), 30)
        for name, way in ways.items()
    }


if __name__ == "__main__":
    main()
