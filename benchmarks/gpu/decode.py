"""Times decode steps of a Llama of a billion random weights; a line of JSON for each figure.

    python -m gpu.decode --out FILE --seconds 200

Beside them are the bandwidth of a copy, where PyTorch is installed; its transformers, with a static
cache and compiled; and llama.cpp, where its program llama-bench is on the PATH and the package gguf
is installed, which writes the file that it opens. It stops by itself when its time is up.
"""

import argparse
import functools
import inspect
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from decode_cuda.model import Shape
from gpu import parts
from gpu.goals import OURS
from gpu.llama import KINDS, program_of

__all__ = ["figures", "llama_bench_seconds", "main", "seconds_of_steps"]

Figure = dict[str, Any]
# Requests, and the positions in the cache of each.
CASES = ((1, 512), (8, 512), (1, 4096))
STEPS, ROUNDS = 64, 7
COPIED = 2**30


def main(words: Sequence[str] | None = None) -> int:
    """Measure what there is time for; return 2 if it was not all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200)
    options = parser.parse_args(words)
    until = time.monotonic() + options.seconds
    import tensor_ops_cuda

    with options.out.open("w", encoding="utf-8") as file:
        for figure in figures(tensor_ops_cuda):
            print(json.dumps(figure), file=file, flush=True)
            if time.monotonic() > until:
                print("decode: its time was up", flush=True)
                return 2
    return 0


def figures(
    executor: Any,
    shape: Shape = parts.LLAMA,
    cases: Sequence[tuple[int, int]] = CASES,
    steps: int = STEPS,
) -> Iterator[Figure]:
    """Time all types of weights; the other engines come last, as one of them may take long."""
    copied = copied_bytes_per_second()
    for kind in KINDS:
        try:
            yield from _of_kind(executor, shape, kind, cases, steps, copied)
        except Exception as error:
            print(f"failed: {kind}: {type(error).__name__}: {error}", flush=True)
            failures = {"all": f"{type(error).__name__}: {error}"[:300]}
            yield {
                "way": parts.DECODE,
                "variant": kind,
                "dtype": "",
                "shape": [0, 0],
                "failures": failures,
            }
    requests, positions = cases[0]
    for name, kind, measured in _peers(shape, positions, steps):
        figure: Figure = _figure(kind, requests, positions, copied)
        try:
            figure["us"] = {name: _us(measured())}
        except Exception as error:
            figure["failures"] = {name: f"{type(error).__name__}: {error}"[:300]}
        yield figure


def _of_kind(
    executor: Any,
    shape: Shape,
    kind: str,
    cases: Sequence[tuple[int, int]],
    steps: int,
    copied: float | None,
) -> Iterator[Figure]:
    requests, positions = (max(numbers) for numbers in zip(*cases, strict=True))
    program, tensors = program_of(shape, kind, requests, positions + steps)
    executable = executor.compile_program(program, tensors)
    try:
        for requests, positions in cases:
            found = seconds_of_steps(executable, requests, positions, steps)
            yield _figure(kind, requests, positions, copied) | {"us": {OURS: _us(found)}}
    finally:
        executable.close()


def seconds_of_steps(executable: Any, requests: int, positions: int, steps: int) -> list[float]:
    """Return the seconds of a decode step after prompts of `positions` tokens, one per round."""
    arrays = executable.arrays
    arrays["page_table"][:] = np.arange(arrays["page_table"].size).reshape(
        arrays["page_table"].shape
    )
    most = len(arrays["tokens"])
    for slot in range(requests):
        for first in range(0, positions, most):
            count = min(most, positions - first)
            arrays["tokens"][:count] = np.arange(first, first + count) % 97
            arrays["positions"][:count] = np.arange(first, first + count)
            arrays["slots"][:count] = slot
            arrays["selected"][0] = count - 1
            executable.run(count, 1)
    found = []
    for _ in range(ROUNDS + 1):
        arrays["tokens"][:requests] = np.arange(requests)
        arrays["positions"][:requests] = positions
        arrays["slots"][:requests] = arrays["selected"][:requests] = np.arange(requests)
        began = time.perf_counter()
        executable.run_steps(requests, steps, "next", [[]] * requests)
        found.append((time.perf_counter() - began) / steps)
    return found[1:]


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


def _peers(shape: Shape, positions: int, steps: int) -> Iterator[tuple[str, str, Any]]:
    program = shutil.which("llama-bench")
    if program is not None and find_spec("gguf") is not None:
        for kind in KINDS:
            measured = functools.partial(_llama_cpp, program, kind, positions, steps)
            yield parts.LLAMA_CPP, kind, measured
    if find_spec("transformers") is not None and find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            measured = functools.partial(_transformers, shape, positions, steps)
            yield parts.TRANSFORMERS, "BF16", measured


def _llama_cpp(program: str, kind: str, positions: int, steps: int) -> list[float]:
    from decode_peers.cases import MODELS
    from decode_peers.models import file_of

    with tempfile.TemporaryDirectory() as folder:
        path = file_of(MODELS[f"1B {kind}"], Path(folder))
        words = [program, "-m", str(path), "-ngl", "99", "-p", "0", "-n", str(steps)]
        words += ["-d", str(positions), "-r", str(ROUNDS), "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    return llama_bench_seconds(done.stdout)


def llama_bench_seconds(printed: str) -> list[float]:
    """Return the seconds of a step, of each round that llama-bench tells of."""
    (test,) = json.loads(printed)
    return [1e-9 * each / test["n_gen"] for each in test["samples_ns"]]


def _transformers(shape: Shape, positions: int, steps: int) -> list[float]:
    """Time a model whose step is compiled to a graph, as its guide to fast decoding has it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        vocab_size=shape.words,
        max_position_embeddings=positions + steps,
        tie_word_embeddings=not shape.has_own_head,
    )
    with torch.no_grad():
        model = LlamaForCausalLM(config).to(parts.DEVICE, torch.bfloat16).eval()
        step = torch.compile(model, mode="reduce-overhead", dynamic=False)
        cache = StaticCache(config, positions + steps)
        # Its name has changed within version 5.
        is_new = "cache" in inspect.signature(model.forward).parameters
        given = {"cache" if is_new else "past_key_values": cache}
        prompt = torch.arange(positions, device=parts.DEVICE)[None] % 97
        model(prompt, **given, logits_to_keep=1)
        found = []
        for _ in range(ROUNDS + 2):  # it compiles in the first
            for layer in cache.layers:
                layer.cumulative_length.fill_(positions)
            ids = torch.zeros((1, 1), dtype=torch.int64, device=parts.DEVICE)
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(steps):
                logits = step(ids, **given).logits
                ids = logits[:, -1:].argmax(-1).clone()
            torch.cuda.synchronize()
            found.append((time.perf_counter() - began) / steps)
    return found[2:]


def _figure(kind: str, requests: int, positions: int, copied: float | None) -> Figure:
    figure: Figure = {
        "way": parts.DECODE,
        "variant": kind,
        "dtype": "",
        "shape": [requests, positions],
    }
    return figure | ({"copied": copied} if copied is not None else {})


def _us(seconds: Sequence[float]) -> list[float]:
    return [round(1e6 * each, 3) for each in seconds]


if __name__ == "__main__":
    sys.exit(main())
