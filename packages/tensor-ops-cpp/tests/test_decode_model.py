"""A whole small model: close to float64, and the same bits however its tokens are computed."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from decode_llama import LONGEST, WORDS, Llama, run_alone, run_step
from weight_blocks import BLOCKS, NUMBERS

import tensor_ops_cpp

HERE = Path(__file__).parent
CPU_LEVELS = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
TOKENS = np.random.default_rng(1).integers(0, WORDS, LONGEST)
MODELS = {
    "plain": {},
    "contiguous": {"paged": False},
    "window": {"window": 7},
    "soft cap": {"soft_cap": 1.5},
    "float16 cache": {"dtype": "float16"},
    "int8 cache": {"dtype": "int8"},
    "contiguous float16 window": {"paged": False, "dtype": "float16", "window": 21},
}
every_model = pytest.mark.parametrize("model", MODELS)


@every_model
def test_logits_are_those_of_float64(model):
    llama = Llama(**MODELS[model])
    executable = llama.compile(num_workers=2)
    logits, best, _ = run_alone(executable, TOKENS, 13)
    executable.close()
    expected = llama.logits(TOKENS)
    # A key or a value may round to the neighbour in a float16 cache, or in one of int8.
    tolerance = {"float16": 2e-3, "int8": 4e-2}.get(llama.dtype, 2e-5)
    np.testing.assert_allclose(logits, expected, atol=tolerance)
    np.testing.assert_array_equal(best[:, 0], logits.argmax(axis=1))


@pytest.fixture(scope="module", params=[*MODELS, "every format"])
def llama_and_bits(request):
    """A model, and what one thread computes of a sequence token by token."""
    llama = Llama(**MODELS.get(request.param, {"formats": [*BLOCKS, *NUMBERS]}))
    executable = llama.compile(num_workers=1)
    sample_all(executable)
    bits = run_alone(executable, TOKENS, 1)
    executable.close()
    return llama, bits


def sample_all(executable):
    executable.arrays["temperature"][:] = 0.8
    executable.arrays["seed"][:] = 42
    executable.arrays["num_edits"][:] = 20
    executable.arrays["edited_tokens"][:, :20] = np.arange(20) * 5
    executable.arrays["edit_biases"][:, :20] = 0.5
    executable.arrays["edit_penalties"][:, :20] = 1.3


def assert_same(given, expected):
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("chunk", [3, 5, 40])
def test_chunks_and_threads_give_the_same_bits(llama_and_bits, workers, chunk):
    llama, bits = llama_and_bits
    executable = llama.compile(num_workers=workers)
    sample_all(executable)
    assert_same(run_alone(executable, TOKENS, chunk, slot=5), bits)
    executable.close()


def test_more_threads_than_tiles_give_the_same_bits(llama_and_bits):
    llama, bits = llama_and_bits
    executable = llama.compile(num_workers=11)
    sample_all(executable)
    assert_same(run_alone(executable, TOKENS, 9), bits)
    executable.close()


def test_a_batch_gives_the_same_bits(llama_and_bits):
    """The sequence in slot 3 beside others of other lengths, some in decode, some in prompts."""
    llama, bits = llama_and_bits
    executable = llama.compile(num_workers=2)
    sample_all(executable)
    draw = np.random.default_rng(2)
    others = {slot: draw.integers(0, WORDS, LONGEST) for slot in (0, 1, 2, 4, 5, 6, 7)}
    sizes = itertools.cycle([1, 4, 2, 1, 9])
    at, parts = 0, []
    while at < LONGEST:
        size = min(next(sizes), LONGEST - at)
        step = [(3, at, TOKENS[at : at + size])]
        for slot, tokens in others.items():
            first = at * (slot + 1) % (LONGEST - 4)
            step.append((slot, first, tokens[first : first + 1 + slot % 4]))
        step = step[4:] + step[:4]
        results = run_step(executable, step)
        parts.append(results[[slot for slot, _, _ in step].index(3)])
        at += size
    assert_same([np.concatenate(part) for part in zip(*parts, strict=True)], bits)
    executable.close()


@pytest.mark.parametrize("level", [x for x in CPU_LEVELS if x != tensor_ops_cpp.simd_level])
def test_other_levels_keep_every_promise(level, request):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [str(HERE / "test_decode_model.py"), "-k", "not levels"]
    command += [] if request.config.getoption("--nightly") else ["--every=3"]
    environment = {**os.environ, "TENSOR_OPS_CPP_ISA": level}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
