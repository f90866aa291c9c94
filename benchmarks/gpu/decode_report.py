"""The table of decode steps on the page about a GPU, beside what was predicted."""

import statistics
from collections.abc import Sequence
from typing import Any

import records
from decode_cuda import model, tables
from decode_cuda.gpus import GPUS, Gpu
from decode_cuda.kernel import from_record
from decode_cuda_page import FORMAT, RECORD
from gpu.goals import OURS
from gpu.parts import DECODE, LLAMA, LLAMA_CPP, TRANSFORMERS

__all__ = ["HEAD", "known_gpu", "rows"]

HEAD = (
    *("weights", "requests", "positions", "a step", "tokens/s", "of the copy", "of the prediction"),
    *(LLAMA_CPP, TRANSFORMERS),
)
NOTHING = "—"
# How drivers call the GPUs that predictions are for.
NAMES = {"A100": "A100-80", "H100": "H100-SXM", "B200": "B200", "RTX 4090": "RTX 4090"}


def known_gpu(name: str) -> Gpu | None:
    """Return the GPU that a driver calls so, if there are predictions for it."""
    found = next((own for part, own in NAMES.items() if part in name), None)
    return next((gpu for gpu in GPUS if gpu.name == found), None)


def rows(figures: Sequence[dict[str, Any]], gpu_name: str) -> list[tuple[str, ...]]:
    """Return a row of the table for each figure of ours."""
    gpu, own = known_gpu(gpu_name), [each for each in figures if each["way"] == DECODE]
    kernels = [from_record(each) for each in records.read(RECORD, FORMAT)["kernels"]]
    found = []
    for figure in own:
        times = figure.get("us", {}).get(OURS)
        if times is None:
            continue
        kind, (requests, positions) = figure["variant"], figure["shape"]
        seconds = 1e-6 * statistics.median(times)
        # Its sizes are the same everywhere, and so are its bytes.
        some = tables.kernel_of(gpu or GPUS[0], kernels)
        meant = model.predict(gpu or GPUS[0], LLAMA, some, kind, positions, requests)
        copied = figure.get("copied")
        found.append(
            (
                *(kind, str(requests), f"{positions:,}", f"{seconds * 1e3:.3g} ms"),
                f"{requests / seconds:.0f}",
                f"{meant.bytes / seconds / copied:.2f}" if copied else NOTHING,
                f"{seconds / meant.seconds:.2f}" if gpu else NOTHING,
                *(_tokens(own, figure, name) for name in (LLAMA_CPP, TRANSFORMERS)),
            )
        )
    return found


def _tokens(figures: Sequence[dict[str, Any]], ours: dict[str, Any], name: str) -> str:
    """Return the tokens per second of another engine in the same case."""
    for each in figures:
        is_same = (each["variant"], each["shape"]) == (ours["variant"], ours["shape"])
        if is_same and (times := each.get("us", {}).get(name)):
            return f"{ours['shape'][0] / (1e-6 * statistics.median(times)):.0f} tokens/s"
    return NOTHING
