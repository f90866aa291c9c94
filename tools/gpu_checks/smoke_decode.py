"""Decode steps beside the reference, and that their bits depend on nothing but the request.

    python tools/gpu_checks/smoke_decode.py q8_0 [--small]

It prints how far logits are from the reference's before it asserts the bound. The large model has
tiles for all multiprocessors, so that a race shows as other bits; emulated it would take hours, for
which --small takes another.
"""

import argparse
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "packages/tensor-ops-cuda/tests"))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from checks import Checks, run
from random_llama import Llama, answers

import tensor_ops_cuda
from decode_cuda.model import TILE_ROWS, Shape
from gpu.decode import seconds_of_steps
from gpu.llama import KINDS, program_of
from tensor_ops_decode import reference

PROMPT = [5, 6, 7, 9, 3, 4]
OTHERS = [[1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4], [7] * 6]
# The most that rounding may change in a logit. The logits of the models here are about 3.
BOUND = 2e-3
CORES: dict[str, dict[str, Any]] = {
    "tensor cores": {},
    "CUDA cores": {"use_cutlass_kernel": False},
}


@dataclass(frozen=True)
class Launches:
    """A model, cases of requests and positions in the cache of each, and launches of steps."""

    shape: Shape
    cases: tuple[tuple[int, int], ...]
    steps: int
    times: int


# Every product has a tile for each of 160 multiprocessors, and several panels.
LARGE = Launches(
    Shape("large", 2, 2560, 40, 8, 64, 6144, 8192, False), ((1, 400), (8, 200)), 64, 20
)
# The same for an emulated device.
TINY = Llama(layers=1, hidden=64, heads=2, kv_heads=1, intermediate=64, vocabulary=90)
SMALL = Launches(Shape("small", 1, 64, 2, 1, 32, 64, 96, False), ((1, 8), (2, 6)), 2, 2)


def main(words: Sequence[str] | None = None) -> int:
    """Check decode steps with weights of one type; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=list(KINDS.values()))
    parser.add_argument("--small", action="store_true", help="a sample, for an emulated device")
    options = parser.parse_args(words)
    return run(_checks(options.kind, options.small))


def _checks(kind: str, is_small: bool) -> Checks:
    blocks = tensor_ops_cuda.devices()[0].compute_units
    llama, launches = (TINY, SMALL) if is_small else (Llama(), LARGE)
    checks: Checks = {}
    for name, cores in CORES.items():
        for cache in ("float16", "float32"):
            checks[f"{kind}, cache of {cache}, {name}: the reference's tokens"] = functools.partial(
                _like_the_reference, replace(llama, kind=kind, cache=cache), blocks, cores
            )
        checks[f"{kind}, {name}: the same bits for any blocks, chunks and requests"] = (
            functools.partial(_same_bits, replace(llama, kind=kind), blocks, cores)
        )
    checks[f"{kind}: the same bits in launches of many steps"] = functools.partial(
        _same_bits_again, launches, kind, blocks
    )
    return checks


def _like_the_reference(llama: Llama, blocks: int, options: dict[str, Any]) -> str:
    program, tensors = llama.program()
    prompts = [PROMPT, *OTHERS]
    meant = answers(reference.compile_program(program.to_json(), tensors), prompts)
    found = _answers(llama, prompts, blocks, options)
    pairs = list(zip(found, meant, strict=True))
    error = max(float(np.abs(logits - right).max()) for (_, logits), (_, right) in pairs)
    wrong = [prompt for prompt, (a, b) in zip(prompts, pairs, strict=True) if a[0] != b[0]]
    said = f"logits differ by {error:.2g} of {BOUND:g}"
    assert not wrong, f"other tokens after {wrong}; {said}"
    assert error < BOUND, said
    return said


def _same_bits(llama: Llama, blocks: int, options: dict[str, Any]) -> None:
    def bits(prompts: list[list[int]], blocks: int, chunks: Any = None) -> tuple[Any, bytes]:
        tokens, logits = _answers(llama, prompts, blocks, options, chunks)[prompts.index(PROMPT)]
        return tokens, logits.tobytes()

    alone = bits([PROMPT], blocks)
    together = [*OTHERS[:2], PROMPT, *OTHERS, PROMPT[::-1], OTHERS[0]]
    found = {f"{n} blocks": bits([PROMPT], n) for n in {1, 2, 3, blocks // 2, blocks - 1}}
    found |= {f"{n} requests": bits(together[:n], blocks) for n in (3, 8)}
    found["chunks"] = bits([PROMPT], blocks, (1, 2, 3))
    others = [name for name, each in found.items() if each != alone]
    assert not others, f"other bits with {', '.join(others)}"


def _same_bits_again(launches: Launches, kind: str, blocks: int) -> str:
    name = next(name for name, own in KINDS.items() if own == kind)
    most, length = (max(numbers) for numbers in zip(*launches.cases, strict=True))
    program, tensors = program_of(launches.shape, name, most, length + launches.steps)
    seen: dict[int, set[tuple[bytes, bytes]]] = {}
    for count in (blocks, blocks - 1, blocks // 2):
        executable = tensor_ops_cuda.compile_program(program, tensors, num_workers=count)
        for requests, positions in launches.cases:
            # It fills the caches.
            seconds_of_steps(executable, requests, positions, launches.steps)
            for _ in range(launches.times):
                bits = _steps(executable, requests, positions, launches.steps)
                seen.setdefault(requests, set()).add(bits)
        executable.close()
    different = {requests: len(each) for requests, each in seen.items()}
    assert set(different.values()) == {1}, f"different bits, by requests: {different}"
    tiles = min(product.rows for product in launches.shape.of_layer) // TILE_ROWS
    return f"{3 * launches.times} launches, {tiles} tiles or more on {blocks} multiprocessors"


def _steps(executable: Any, requests: int, positions: int, steps: int) -> tuple[bytes, bytes]:
    """Return the bits of the tokens and the last logits of steps in one launch."""
    arrays = executable.arrays
    arrays["tokens"][:requests] = np.arange(requests)
    arrays["positions"][:requests] = positions
    arrays["slots"][:requests] = arrays["selected"][:requests] = np.arange(requests)
    tokens = executable.run_steps(requests, steps, "next", [[]] * requests)
    return tokens.tobytes(), arrays["logits"][:requests].tobytes()


def _answers(
    llama: Llama, prompts: Any, blocks: int, options: dict[str, Any], chunks: Any = None
) -> Any:
    program, tensors = llama.program()
    executable = tensor_ops_cuda.compile_program(
        program.to_json(), tensors, num_workers=blocks, options=options
    )
    found = answers(executable, prompts, chunks)
    executable.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
