"""What a LoRA adapter costs a decode step: steps with it and without, in turn.

The adapters are random, of several ranks, types and choices of matrices, beside SmolLM2 and random
models of the shapes of Llama 3.2 with one and with three billion weights. Of each round the
fastest step of each counts: what else the machine does makes steps longer only. Files that are
missing are written, 2 GB.

    python benchmarks/decode_adapters.py .benchmarks/decode --json RECORD.json
"""

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tensor_ops_cpp
from decode_blocks import run, setting_of
from decode_peers.cases import Model
from decode_peers.models import file_of
from tensor_ops_decode import PersistentKernel, open_weights
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.adapter import open_adapter
from tensor_ops_decode.program.step_reads import StepReads
from tensor_ops_decode.weights.safetensors import header_of

MODELS = (("SmolLM2 Q4_1", "Q4_1"), ("1B Q4_K", "Q4_K"), ("3B Q4_K", "Q4_K"))
MODULES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CHOICES = {"q, v": ("attn_q", "attn_v"), "q, k, v, o": tuple(MODULES)[:4], "all": tuple(MODULES)}
# The matrices, the rank, the type in the file, and what it is quantized to when it is packed.
ADAPTERS = (
    ("q, v", 16, "F32", None),
    ("q, k, v, o", 16, "F32", None),
    ("all", 8, "F32", None),
    ("all", 16, "F32", None),
    ("all", 8, "BF16", None),
    ("all", 16, "BF16", None),
    ("all", 32, "BF16", None),
    ("all", 16, "F32", "q8_0"),
)
POSITION, IN_TURN = 100, 12


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the seconds of steps, and the bytes that one reads, by model and adapter."""
    from threads import facts

    models = {}
    for name, kind in MODELS:
        path = file_of(Model(name, kind, ()), folder)
        models[name] = [_adapter(path, each, rounds) for each in ADAPTERS]
    how = {"rounds": rounds, "in_turn": IN_TURN}
    return facts() | {"model": "SmolLM2-135M and random models", "how": how, "models": models}


def _adapter(path: Path, of: tuple[str, int, str, str | None], rounds: int) -> dict[str, Any]:
    matrices, rank, kind, quantize = of
    with tempfile.TemporaryDirectory() as folder:
        _write_adapter(Path(folder), path, CHOICES[matrices], rank, kind)
        programs = [_program(path, adapter, quantize) for adapter in (None, folder)]
        weights = open_weights(path)
        adapted = open_adapter(folder, decoder_of(weights), weights).weights
        made = zip(programs, (weights, adapted), strict=True)
        executables = [_executable(program, given) for program, given in made]
        seconds: list[list[float]] = [[], []]
        for number in range(rounds + 1):
            each = [[_seconds(one) for one in executables] for _ in range(IN_TURN)]
            if number > 0:  # the first warms up
                for found, all_ in zip(seconds, zip(*each, strict=True), strict=True):
                    found.append(min(all_))
        for executable in executables:
            executable.close()
    names = {"matrices": matrices, "rank": rank, "type": kind, "quantize": quantize}
    read = [_bytes_of(program) for program in programs]
    return names | {
        "bytes": dict(zip(("without", "with"), read, strict=True)),
        "seconds": dict(zip(("without", "with"), seconds, strict=True)),
    }


def _program(path: Path, adapter: str | None, quantize: str | None) -> Any:
    limits = {"max_seq_length": 512, "max_num_batched_requests": 1, "max_num_batched_tokens": 16}
    given = {"adapter": adapter, "quantize": quantize if adapter else None}
    with PersistentKernel(model=path, backend="cpp", **given, **limits) as kernel:
        return kernel.program


def _bytes_of(program: Any) -> int:
    """Return the bytes of weights that a step of one token reads."""
    return sum(size for types in StepReads.of(program).weights.values() for size in types.values())


def _executable(program: Any, weights: Any) -> Any:
    made = tensor_ops_cpp.compile_program(program.to_json(), TensorArrays(program, {}, weights))
    made.arrays["page_table"][0] = range(made.arrays["page_table"].shape[1])
    return made


def _seconds(executable: Any) -> float:
    arrays = executable.arrays
    arrays["tokens"][0], arrays["positions"][0], arrays["selected"][0] = 5, POSITION, 0
    start = time.perf_counter()
    executable.run(1, 1)
    return time.perf_counter() - start


def _write_adapter(
    folder: Path, path: Path, matrices: tuple[str, ...], rank: int, kind: str
) -> None:
    """Write an adapter as peft does, of random numbers."""
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = dict(_tensors(path, matrices, rank, kind))
    header = {name: (kind, array.shape, array.nbytes) for name, array in tensors.items()}
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(header_of({}, header))
        for array in tensors.values():
            file.write(array.data)


def _tensors(
    path: Path, matrices: tuple[str, ...], rank: int, kind: str
) -> Iterator[tuple[str, np.ndarray]]:
    weights, draw = open_weights(path), np.random.default_rng(0)
    for name in weights.names:
        _, layer, matrix = (*name.removesuffix(".weight").split("."), "", "")[:3]
        if matrix not in matrices:
            continue
        rows, columns = weights.header(name).shape
        module = f"base_model.model.model.layers.{layer}.{MODULES[matrix]}"
        for part, shape in (("A", (rank, columns)), ("B", (rows, rank))):
            values = draw.standard_normal(shape, np.float32) * np.float32(0.01)
            stored = (values.view(np.uint32) >> 16).astype(np.uint16) if kind == "BF16" else values
            yield f"{module}.lora_{part}.weight", stored


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page docs/decode_performance.md."""
    lines = [
        "| model | matrices | rank | type | a step without, ms | time beside without | quartiles "
        "| bytes beside without |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model, adapters in record["models"].items():
        for each in adapters:
            seconds, read = each["seconds"], each["bytes"]
            pairs = zip(seconds["with"], seconds["without"], strict=True)
            ratios = [after / before for after, before in pairs]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            kind = (
                f"{each['type']}, {each['quantize'].upper()}" if each["quantize"] else each["type"]
            )
            lines.append(
                f"| {model} | {each['matrices']} | {each['rank']} | {kind} "
                f"| {statistics.median(seconds['without']) * 1e3:.1f} | {middle:.2f} "
                f"| {low:.2f} to {high:.2f} | {read['with'] / read['without']:.3f} |"
            )
    return {"adapters-setting": setting_of(record), "adapters": "\n".join(lines)}


if __name__ == "__main__":
    run(__doc__, measure, blocks, rounds=15)
