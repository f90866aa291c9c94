"""Measures on this machine's GPU; a line of JSON for each figure, as soon as it is there.

    python -m gpu.measure --out FILE --seconds 300

It stops by itself when its time is up; the figures that matter most come first.
"""

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensor_ops_cuda
from gpu import parts, peers, timing
from gpu.parts import VARIANTS, Part
from tensor_ops.ops import OPS

__all__ = ["main", "cache_bytes"]

Figure = dict[str, Any]
COPY = "copy"
HOST_BYTES = 128 * 10**6
GUIDE = ("rms_norm", "silu", "gelu:tanh")
# The other libraries come last and may be cut short.
SHARES = {parts.BANDWIDTH: 0.3, parts.HOST: 0.45, parts.HOST_ARRAYS: 0.6}


def main() -> int:
    """Measure what there is time for; return 2 if it was not all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    began = time.monotonic()
    torch.set_grad_enabled(False)
    is_whole = True
    with options.out.open("w", encoding="utf-8") as file:
        for way, figures in _ways().items():
            until = began + options.seconds * SHARES.get(way, 1.0)
            for figure in figures:
                print(json.dumps(figure), file=file, flush=True)
                if time.monotonic() > until:
                    print(f"{way}: its time was up", flush=True)
                    is_whole = False
                    break
    print(f"measured for {time.monotonic() - began:.0f} s")
    return 0 if is_whole else 2


def _ways() -> dict[str, Iterator[Figure]]:
    return {
        parts.BANDWIDTH: _bandwidths(),
        parts.HOST: _host_times(),
        parts.HOST_ARRAYS: _host_arrays(),
        parts.CALL: _beside_peers(),
    }


def _bandwidths() -> Iterator[Figure]:
    for part in parts.bandwidth():
        yield _figure(part, _bandwidth)


def _bandwidth(part: Part) -> Figure:
    """Time an op into memory that is there, and a copy of the same bytes."""
    variant = VARIANTS[part.variant]
    op = getattr(tensor_ops_cuda, variant.op.name)
    ours, copies = [], []
    for _ in range(parts.number_of_sets(part, cache_bytes())):
        values = parts.arrays_of(part, torch)
        out = tuple(torch.empty_like(values[variant.op.first]) for _ in range(variant.op.outputs))
        target = out if len(out) > 1 else out[0]
        ours.append(functools.partial(op, *values.values(), **variant.options, out=target))
        half = parts.moved(part) // 2
        source = torch.empty(half, dtype=torch.uint8, device=parts.DEVICE).random_()
        copies.append(functools.partial(torch.empty_like(source).copy_, source))
    return {"us": _us(timing.on_stream({peers.OURS: ours, COPY: copies}, ahead=True))}


def _host_times() -> Iterator[Figure]:
    """Host time of a call on a short row, by us and by torch."""
    import tensor_ops

    for variant in VARIANTS.values():
        part = Part(parts.HOST, variant.name, "float32", (1, 256))
        yield _figure(part, functools.partial(_host_time, tensor_ops=tensor_ops))


def _host_time(part: Part, tensor_ops: Any) -> Figure:
    variant = VARIANTS[part.variant]
    values = parts.arrays_of(part, torch)
    given = list(values.values())
    out = tuple(torch.empty_like(given[0]) for _ in range(variant.op.outputs))
    target = out if len(out) > 1 else out[0]
    op = getattr(tensor_ops_cuda, variant.op.name)
    dispatched = getattr(tensor_ops, variant.op.name)
    entries: dict[str, Callable[[], Any]] = {
        peers.OURS: functools.partial(op, *given, **variant.options),
        f"{peers.OURS} out=": functools.partial(op, *given, **variant.options, out=target),
        "tensor_ops": functools.partial(dispatched, *given, **variant.options),
    }
    for name, make in peers.calls(part, values):
        if name == "torch":
            entries[name] = make()
    return {"us": _us({name: timing.host_seconds(call) for name, call in entries.items()})}


def _host_arrays() -> Iterator[Figure]:
    """NumPy arrays: beside copies both ways at once from pinned memory, and beside NumPy."""
    if not tensor_ops_cuda.probe()["available"]:
        return
    for variant in VARIANTS.values():
        if variant.name in (*GUIDE, "softmax", "silu_mul", "layer_norm"):
            part = Part(parts.HOST_ARRAYS, variant.name, "float32", (HOST_BYTES // 4 // 4096, 4096))
            yield _figure(part, _host_array)


def _host_array(part: Part) -> Figure:
    variant = VARIANTS[part.variant]
    op = getattr(tensor_ops_cuda, variant.op.name)
    values = {name: each.cpu().numpy() for name, each in parts.arrays_of(part, torch).items()}
    out = np.empty_like(values[variant.op.first])
    full = sum(variant.op.kinds[name].is_full for name in values)
    entries: dict[str, Callable[[], Any]] = {
        f"{peers.OURS} out=": functools.partial(op, *values.values(), **variant.options, out=out),
        peers.OURS: functools.partial(op, *values.values(), **variant.options),
        COPY: _copies_both_ways(out.nbytes * full, out.nbytes),
    }
    found = {name: _wall_seconds(call, 5) for name, call in entries.items()}
    if variant.name in GUIDE:
        body = functools.partial(OPS[variant.op.name].numpy, *values.values(), **variant.options)
        found["python"] = _wall_seconds(body, 2)
    return {"us": _us(found)}


def _copies_both_ways(up: int, down: int) -> Callable[[], None]:
    """Return what uploads and downloads so many bytes at once, from and to pinned memory."""
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in (up, down)]
    device = [torch.empty(size, dtype=torch.uint8, device=parts.DEVICE) for size in (up, down)]

    def run() -> None:
        with torch.cuda.stream(streams[0]):
            device[0].copy_(host[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            host[1].copy_(device[1], non_blocking=True)
        torch.cuda.synchronize()

    return run


def _wall_seconds(call: Callable[[], Any], count: int) -> list[float]:
    call()
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


def _beside_peers() -> Iterator[Figure]:
    for part in parts.beside_peers():
        yield _figure(part, _beside)


def _beside(part: Part) -> Figure:
    """Time every library that has the op; results are new, as their users have them."""
    entries: dict[str, list[timing.Call]] = {}
    failures: dict[str, str] = {}
    for _ in range(parts.number_of_sets(part, cache_bytes())):
        for name, make in peers.calls(part, parts.arrays_of(part, torch)):
            if name in failures:
                continue
            try:
                call = make()
                call()
                entries.setdefault(name, []).append(call)
            except Exception as error:
                failures[name] = f"{type(error).__name__}: {error}"
                entries.pop(name, None)
    if part.way == parts.GRAPH:
        found, lost = timing.in_graphs(entries)
        failures |= lost
    else:
        found = timing.on_stream(entries, ahead=False)
    return {"us": _us(found)} | ({"failures": _short(failures)} if failures else {})


def _figure(part: Part, measured: Callable[[Part], Figure]) -> Figure:
    """Measure one part; a failure is a figure too, and ends no other."""
    try:
        return part.as_dict() | measured(part)
    except Exception as error:
        print(f"failed: {part}: {type(error).__name__}: {error}", flush=True)
        return part.as_dict() | {"failures": {"all": f"{type(error).__name__}: {error}"[:300]}}
    finally:
        torch.cuda.empty_cache()


def _us(seconds: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [round(1e6 * each, 3) for each in rounds] for name, rounds in seconds.items()}


def _short(failures: dict[str, str]) -> dict[str, str]:
    return {name: text[:300] for name, text in failures.items()}


@functools.cache
def cache_bytes() -> int:
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


if __name__ == "__main__":
    sys.exit(main())
