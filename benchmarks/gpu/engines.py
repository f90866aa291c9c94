"""Other engines that time decode steps of the same model on this machine's GPU.

Tested by tests/benchmarks/test_gpu_decode.py.
"""

import functools
import inspect
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from decode_cuda.model import Shape
from gpu import parts
from gpu.llama import KINDS

__all__ = ["engines", "llama_bench_seconds"]

Measured = Callable[[], list[float]]


def engines(
    shape: Shape, positions: int, steps: int, rounds: int
) -> Iterator[tuple[str, str, Measured]]:
    """Yield the engines that are here: a name, a type of weights, and what measures it.

    That returns the seconds of a step of one request after `positions` tokens, one per round.
    """
    program = shutil.which("llama-bench")
    if program is not None and find_spec("gguf") is not None:
        for kind in KINDS:
            measured = functools.partial(_llama_cpp, program, kind, positions, steps, rounds)
            yield parts.LLAMA_CPP, kind, measured
    if find_spec("transformers") is not None and find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            measured = functools.partial(_transformers, shape, positions, steps, rounds)
            yield parts.TRANSFORMERS, "BF16", measured


def _llama_cpp(program: str, kind: str, positions: int, steps: int, rounds: int) -> list[float]:
    from decode_peers.cases import MODELS
    from decode_peers.models import file_of

    with tempfile.TemporaryDirectory() as folder:
        path = file_of(MODELS[f"1B {kind}"], Path(folder))
        words = [program, "-m", str(path), "-ngl", "99", "-p", "0", "-n", str(steps)]
        words += ["-d", str(positions), "-r", str(rounds), "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    return llama_bench_seconds(done.stdout)


def llama_bench_seconds(printed: str) -> list[float]:
    """Return the seconds of a step, of each round that llama-bench tells of."""
    (test,) = json.loads(printed)
    return [1e-9 * each / test["n_gen"] for each in test["samples_ns"]]


def _transformers(shape: Shape, positions: int, steps: int, rounds: int) -> list[float]:
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
        for _ in range(rounds + 2):  # it compiles in the first
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
