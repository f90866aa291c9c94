"""Figures of a GPU, found while steps are timed on it, and predictions that are made with them.

Tested by tests/benchmarks/test_gpu_decode.py.
"""

import functools
import shutil
import subprocess
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

import records
from decode_cuda import model, tables
from decode_cuda.gpus import GPUS, Gpu, gpu_named
from decode_cuda.kernel import from_record
from decode_cuda.model import Shape
from decode_cuda_page import FORMAT, RECORD
from gpu import parts

__all__ = ["Found", "copied_bytes_per_second", "found_here", "predicted"]

COPIED = 2**30


@dataclass(frozen=True)
class Found:
    """Figures of the GPU: the bandwidth of a copy, and what nvidia-smi shows of it."""

    copied: float | None = None
    name: str = ""
    clock: float | None = None  # in hertz

    @property
    def gpu(self) -> Gpu | None:
        """The GPU for predictions, if there are any for one of this name."""
        gpu = gpu_named(self.name)
        return gpu and gpu.as_found(self.copied, self.clock)


def found_here(copied: float | None) -> Found:
    """Return what nvidia-smi shows of the first GPU now, beside the bandwidth of a copy."""
    if shutil.which("nvidia-smi") is None:
        return Found(copied)
    words = ["nvidia-smi", "--query-gpu=name,clocks.sm", "--format=csv,noheader,nounits"]
    shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    name, _, clock = shown.partition("\n")[0].rpartition(", ")
    return Found(copied, name, 1e6 * float(clock) if clock.strip().isdecimal() else None)


def copied_bytes_per_second() -> float | None:
    """Return what a copy on the device reads and writes in a second; None without PyTorch."""
    if find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    from gpu import timing

    source = torch.empty(COPIED, dtype=torch.uint8, device=parts.DEVICE).random_()
    copy = functools.partial(torch.empty_like(source).copy_, source)
    return 2 * COPIED / float(np.median(timing.on_stream({"copy": [copy]}, ahead=True)["copy"]))


def predicted(
    found: Found, shape: Shape, kind: str, case: tuple[int, int], blocks: int | None
) -> dict[str, Any]:
    """Return what was found of the GPU, and what its steps should take, in microseconds.

    The bytes that a step reads are the same on all GPUs.
    """
    known = found.gpu
    gpu = known or GPUS[0]
    gpu = replace(gpu, multiprocessors=blocks or gpu.multiprocessors)
    kernels = [from_record(each) for each in records.read(RECORD, FORMAT)["kernels"]]
    meant = model.predict(gpu, shape, tables.kernel_of(gpu, kernels), kind, *case[::-1])
    figure: dict[str, Any] = {
        "bytes": round(meant.bytes),
        "copied": found.copied,
        "clock": found.clock,
    }
    if known is None:
        return figure
    times = {
        "step": meant.seconds,
        "reading": meant.stream,
        "multiplying": meant.multiply,
        "pauses": meant.pauses,
        "attention": meant.attention,
    }
    figure["bandwidth"] = known.bandwidth  # of the data sheet
    return figure | {"predicted": {name: round(1e6 * each, 2) for name, each in times.items()}}
