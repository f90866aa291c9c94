"""The tables of docs/decode_cuda_predictions.md, made from the record of what was counted."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from decode_cuda import model
from decode_cuda.gpus import ATTAINABLE, GPUS, Gpu
from decode_cuda.kernel import FORMATS, Kernel, from_record
from decode_cuda.model import ISSUE, SCHEDULERS, SHAPES, Shape
from decode_cuda.step_cases import MODELS, Model
from harness import tables

__all__ = ["KINDS", "OTHER", "blocks", "kernel_of"]

_table = partial(tables.table, rule=" --- ")

POSITIONS, MORE_POSITIONS, MORE_TOKENS = 512, 4096, 8
HOPPER = tuple(gpu for gpu in GPUS if gpu.architecture == 90)
# Purposes of the instructions of a step.
KINDS = {
    "tensor cores": ("IMMA", "HMMA"),
    "loads from shared memory": ("LDS",),
    "copies to shared memory": ("LDGSTS", "LDGDEPBAR", "DEPBAR"),
    "integers to floats": ("I2F", "I2FP"),
    "scales to floats": ("HADD2",),
    "sums with scales": ("FMUL", "FFMA"),
    "bits": ("LOP3", "SHF", "PRMT"),
    "integers and addresses": (
        *("IMAD", "IADD", "IADD3", "LEA", "VIADD", "UIADD3", "SEL"),
        *("MOV", "UMOV", "CS2R"),
    ),
}
OTHER = "branches, comparisons, waits"


def kernel_of(gpu: Gpu, kernels: Iterable[Kernel]) -> Kernel:
    """Return the kernel that runs on a GPU: of its architecture, with the slots it has room for."""
    own = {each.slots: each for each in kernels if each.architecture == gpu.architecture}
    return own[gpu.slots({slots: each.shared_bytes for slots, each in own.items()})]


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page by name."""
    kernels = [from_record(each) for each in record["kernels"]]
    return {
        "counts setting": (
            f"Counted on {record['date'][:10]}, of what nvcc {record['compiler']} makes of commit "
            f"{record['commit']['id'][:12]}."
        ),
        "kernel": _kernel_table(kernels),
        "kinds": _kinds_table(kernel_of(GPUS[1], kernels)),
        "gpus": _gpu_table(kernels),
        "steps": _step_table(kernels),
        "more": _more_table(kernels),
        "example": _example(kernels),
        "cases": _cases_table(kernels),
    }


def _kernel_table(kernels: Sequence[Kernel]) -> str:
    head = ["GPUs", "slots", "registers", "local memory", "code", "shared memory of a block"]
    rows = [
        [
            f"sm_{each.architecture}", str(each.slots), str(each.registers),
            "none" if each.local_accesses == each.stack == 0 else f"{each.local_accesses} accesses",
            f"{each.code_bytes / 1024:.0f} KB", f"{each.shared_bytes / 1024:.1f} KB",
            *(f"{each.steps[name].per_kb:.0f}" for name in FORMATS),
        ]
        for each in kernels
    ]  # fmt: skip
    return _table([*head, *(f"instructions per KB, {name}" for name in FORMATS)], rows)


def _kinds_table(kernel: Kernel) -> str:
    rows = []
    known = {opcode for opcodes in KINDS.values() for opcode in opcodes}
    steps = [kernel.steps[name] for name in FORMATS]
    for kind, opcodes in KINDS.items():
        counts = [sum(step.by_opcode.get(each, 0) for each in opcodes) for step in steps]
        rows.append([kind, *map(str, counts)])
    others = [sum(n for each, n in step.by_opcode.items() if each not in known) for step in steps]
    rows.append([OTHER, *map(str, others)])
    rows.append(["all of a step", *(str(step.instructions) for step in steps)])
    rows.append(["bytes of a step", *(str(step.bytes) for step in steps)])
    rows.append(["more for each tile of a warp, at least", *(str(step.join) for step in steps)])
    rows.append(["four columns of activations, at least", *(str(step.prepare) for step in steps)])
    return _table([f"sm_{kernel.architecture}", *FORMATS], rows)


def _gpu_table(kernels: Sequence[Kernel]) -> str:
    head = ["GPU", "TB/s", "multiprocessors", "GHz", "slots", "KB in flight: wanted", "there are"]
    head += ["instruction slots per KB", *(f"used by {name}" for name in FORMATS)]
    head += ["clocks per KB", *(f"shared memory in {name}" for name in FORMATS)]
    rows = []
    for gpu in GPUS:
        kernel = kernel_of(gpu, kernels)
        steps = [kernel.steps[name] for name in FORMATS]
        slots = SCHEDULERS * gpu.clocks_per_kb
        passes = [(s.shared_passes + s.bytes / 128) / s.bytes * 1024 for s in steps]
        rows.append(
            [
                gpu.name, f"{gpu.bandwidth / 1e12:.2f}", str(gpu.multiprocessors),
                f"{gpu.clock / 1e9:.2f}", str(kernel.slots), f"{gpu.wanted_in_flight / 1024:.1f}",
                " to ".join(f"{kernel.in_flight(name) / 1024:.0f}" for name in ("BF16", "Q4_0")),
                f"{slots:.0f}", *(f"{step.per_kb / slots:.0%}" for step in steps),
                f"{gpu.clocks_per_kb:.0f}", *(f"{each / gpu.clocks_per_kb:.0%}" for each in passes),
            ]
        )  # fmt: skip
    return _table(head, rows)


def _step_table(kernels: Sequence[Kernel]) -> str:
    head = ["GPU", "model", "weights", "GB read", "reading", "multiplying", "pauses", "attention"]
    head += ["a step, ms", "tokens/s", "of the attainable bandwidth"]
    rows = []
    for gpu, shape, name, kernel in _cases(kernels):
        start = [gpu.name, shape.name, name]
        if not model.fits(gpu, shape, kernel.steps[name]):
            size = model.weight_bytes(shape, kernel.steps[name]) / 1e9
            rows.append([*start, f"{size:.1f}", *["—"] * 4, "does not fit", "—", "—"])
            continue
        found = model.predict(gpu, shape, kernel, name, POSITIONS)
        parts = (found.stream, found.multiply, found.pauses, found.attention, found.seconds)
        rows.append(
            [
                *start, f"{found.bytes / 1e9:.2f}", *map(_ms, parts),
                f"{1 / found.seconds:.0f}", f"{found.share:.0%}",
            ]
        )  # fmt: skip
    return _table(head, rows)


def _more_table(kernels: Sequence[Kernel]) -> str:
    head = ["GPU", "model", "weights", f"ms at {MORE_POSITIONS:,} positions", "bandwidth used"]
    head += [f"ms of {MORE_TOKENS} requests", "tokens/s of all"]
    rows = []
    for gpu, shape, name, kernel in _cases(kernels):
        if model.fits(gpu, shape, kernel.steps[name]):
            late = model.predict(gpu, shape, kernel, name, MORE_POSITIONS)
            many = model.predict(gpu, shape, kernel, name, POSITIONS, MORE_TOKENS)
            cells = [_ms(late.seconds), f"{late.share:.0%}", _ms(many.seconds)]
            rows.append([gpu.name, shape.name, name, *cells, f"{MORE_TOKENS / many.seconds:.0f}"])
    return _table(head, rows)


def _cases_table(kernels: Sequence[Kernel]) -> str:
    """Return what is predicted of the steps that a first run times, in microseconds.

    Both GPUs have the same multiprocessors: what does not come from memory takes as long on either.
    """
    head = ["model", "weights", "requests", "positions", "blocks"]
    head += ["multiplying", "pauses", "attention"]
    head += [f"{what} on {gpu.name}" for gpu in HOPPER for what in ("reading", "a step")]
    rows = []
    for each in MODELS.values():
        for name in ("BF16", "Q4_0"):
            for blocks, (requests, positions) in _timed(each):
                both = []
                for gpu in HOPPER:
                    some = replace(gpu, multiprocessors=blocks)
                    kernel = kernel_of(gpu, kernels)
                    both.append(model.predict(some, each.shape, kernel, name, positions, requests))
                cells = [both[0].multiply, both[0].pauses, both[0].attention]
                cells += [part for found in both for part in (found.stream, found.seconds)]
                start = [each.shape.name, name, str(requests), f"{positions:,}", str(blocks)]
                rows.append([*start, *(f"{1e6 * part:,.0f}" for part in cells)])
    return _table(head, rows)


def _timed(each: Model) -> Iterable[tuple[int, tuple[int, int]]]:
    blocks = HOPPER[0].multiprocessors
    yield from ((blocks, case) for case in each.cases)
    yield from ((round(part * blocks), each.cases[0]) for part in each.fewer_blocks)


def _example(kernels: Sequence[Kernel]) -> str:
    """Return the arithmetic of one line of the table."""
    gpu, shape, name = GPUS[1], SHAPES[1], "Q4_0"
    kernel = kernel_of(gpu, kernels)
    step = kernel.steps[name]
    found = model.predict(gpu, shape, kernel, name, POSITIONS)
    rate = gpu.attainable
    room = kernel.in_flight(name) * gpu.multiprocessors
    barriers = 5 * shape.layers + 2
    panels = sum(model.panel_count(each, step) for each in shape.of_layer)
    lines = [
        f"{shape.name} in {name} on {gpu.name}, one token:",
        f"- **Reading**: {found.bytes / 1e9:.2f} GB, of which "
        f"{shape.layers * shape.cache_bytes(POSITIONS) / 1e6:.0f} MB are keys and values, at "
        f"{ATTAINABLE:.0%} of {gpu.bandwidth / 1e12:.2f} TB/s: {_ms(found.stream)} ms.",
        f"- **Multiplying**: {step.instructions} instructions for {step.bytes} bytes, "
        f"{step.join} for each tile of a warp and {model.STORE} for its sums, in {SCHEDULERS} "
        f"slots a clock of which {ISSUE:.0%} are used, by the block that has the most tiles: "
        f"{_ms(found.multiply)} ms.",
        f"- **Pauses**: {barriers} barriers of {model.BARRIER * 1e6:.1f} us are "
        f"{_ms(barriers * model.BARRIER)} ms, of which those of attention are counted there. "
        f"{panels} panels a layer are prepared by every block, four columns a thread at a time: "
        f"{step.prepare} instructions, {model.CLOCKS} clocks each, and a load from L2 of "
        f"{model.L2 * 1e6:.1f} us. All pauses: {_ms(found.pauses)} ms.",
        f"- **Attention**: {_ms(found.attention)} ms, {found.attention / shape.layers * 1e6:.1f} "
        f"us a layer.",
        f"- The rings of all blocks hold {room / 1e6:.1f} MB: they go on reading for "
        f"{room / rate * 1e6:.1f} us of a pause. Together that is {_ms(found.seconds)} ms: no "
        f"less than reading alone, nor than the three others after one another "
        f"({_ms(found.multiply + found.pauses + found.attention)} ms).",
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _cases(kernels: Sequence[Kernel]) -> Iterable[tuple[Gpu, Shape, str, Kernel]]:
    for gpu in GPUS:
        for shape in SHAPES:
            for name in FORMATS:
                yield gpu, shape, name, kernel_of(gpu, kernels)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"
