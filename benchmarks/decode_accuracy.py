"""How near the logits of a GGUF model are to those of float64, beside other engines'.

Every engine reads the same text, token by token as it stands there. The logits after each token are
held against those that the backend python computes in float64 from the same weights: the largest
difference, and the Kullback-Leibler divergence of the next token's distribution.

    python benchmarks/decode_accuracy.py MODEL.gguf --peers-python /path/to/bin/python
    python benchmarks/decode_accuracy.py MODEL.gguf --dense MODEL-BF16.gguf
    python benchmarks/decode_accuracy.py --report

The first writes ``results/decode_accuracy.json`` and the table of the guide, the second their part
of a model in bfloat16 with the same tokens, and the last the table.
The other engines are llama.cpp, as llama-cpp-python builds it, and OpenVINO GenAI. The interpreter
``--peers-python``, such as that of ``nox -s peers_decode``, imports them. An engine that is not
installed there is named as missing in the record.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "decode_accuracy.json"
PAGE = ROOT / "docs" / "guides" / "decode.md"
NUM_TOKENS = 192
HEADS = ("q5_1", "q5_0", "q4_1")
TEXT = """\
The harbour was empty when the ferry came in. Two boys sat on the wall and counted the crates that
the crew carried down the ramp: oranges, machine parts, a piano wrapped in grey blankets. Nobody had
ordered a piano. The captain read the label three times, shrugged, and had it set down beside the
old scales, where it stood for the rest of the summer and was slowly tuned by the rain.

To find out how deep a well is, drop a stone and count the seconds until you hear it. The stone
falls about five metres in the first second and fifteen more in the next, because it gains speed as
it falls. Sound needs time too, but so little that for any well you are likely to meet you may
leave it out of the sum.

A good map leaves most of the world away. It shows the road and not the dust on it, the river and
not its colour, and it puts a name where there is only a field. Whoever reads it agrees to this
bargain without a word, and is surprised, now and then, to find that the field is still there.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--dense", type=Path, help="a model in BF16: measure that only")
    parser.add_argument("--json", type=Path, default=RECORD, help="write the figures here")
    parser.add_argument("--report", action="store_true", help="write the table of a record only")
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        name, given, found = options.peer
        np.save(found, PEERS[name](options.model, np.load(given)))
        return
    import decode_perplexity
    from pages import update

    record = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    if options.dense:
        record["dense"] = measure_dense(options.model, options.dense)
    elif not options.report:
        record |= measure(options.model, options.peers_python)
    options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    update(PAGE, blocks(record) | decode_perplexity.blocks_of_page())
    print(*blocks(record).values(), sep="\n")


def measure(model: Path, peers_python: str) -> dict[str, Any]:
    """Return how far the logits of every engine are from those of float64."""
    import tensor_ops_cpp
    from tensor_ops_decode import open_weights, reference
    from tensor_ops_decode.text import open_tokenizer
    from threads import facts

    weights = open_weights(model)
    tokens = open_tokenizer(weights).encode(TEXT)[:NUM_TOKENS]
    right = of_backend(reference, weights, tokens, "float32", {"dtype": "float64"})
    engines, missing = {}, {}
    for cache in ("float16", "float32"):
        for activations in ("int8x2", "int8", "float32"):
            given = {"activations": activations}
            logits = of_backend(tensor_ops_cpp, weights, tokens, cache, given)
            name = f"cpp, activations {activations}, cache {cache}"
            engines[name] = differences(logits, right)
    for activations in ("int8x2", "int8"):
        logits = of_backend(tensor_ops_cpp, weights, tokens, "int8", {"activations": activations})
        engines[f"cpp, activations {activations}, cache int8"] = differences(logits, right)
    for head in HEADS:
        given = {"activations": "int8x2"}
        logits = of_backend(tensor_ops_cpp, weights, tokens, "float16", given, head)
        engines[f"cpp, int8x2, float16, quantize_head {head}"] = differences(logits, right)
    logits_of = {}
    for name in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            given, found = Path(folder, "tokens.npy"), Path(folder, "logits.npy")
            np.save(given, tokens)
            words = [peers_python, __file__, str(model), "--peer", name, str(given), str(found)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                missing[name] = done.stderr.strip().rpartition("\n")[2]
            else:
                logits_of[name] = np.load(found).astype(np.float64)
                engines[name] = differences(logits_of[name], right)
    if {OPENVINO, OPENVINO_FLOAT32} <= logits_of.keys():
        of_itself = differences(logits_of[OPENVINO], logits_of[OPENVINO_FLOAT32])
        engines[f"{OPENVINO}, beside itself in float32"] = of_itself
    return facts() | {
        "model": model.name,
        "tokens": len(tokens),
        "missing": missing,
        "engines": engines,
    }


def measure_dense(model: Path, dense: Path) -> dict[str, Any]:
    """Return the same of a model in bfloat16, with float32 caches."""
    import tensor_ops_cpp
    from tensor_ops_decode import open_weights, reference
    from tensor_ops_decode.text import open_tokenizer
    from threads import facts

    tokens = open_tokenizer(open_weights(model)).encode(TEXT)[:NUM_TOKENS]
    weights = open_weights(dense)
    right = of_backend(reference, weights, tokens, "float32", {"dtype": "float64"})
    engines = {}
    for activations in ("float32", "bfloat16"):
        given = {"activations": activations}
        logits = of_backend(tensor_ops_cpp, weights, tokens, "float32", given)
        name = f"cpp, weights bf16, activations {activations}, cache float32"
        engines[name] = differences(logits, right)
    return facts() | {"model": dense.name, "engines": engines}


def of_backend(
    backend: Any,
    weights: Any,
    tokens: list[int],
    cache: str,
    options: dict[str, object],
    head: str | None = None,
) -> Any:
    """Return the logits after each token, of a backend that runs programs."""
    from tensor_ops_decode import Limits
    from tensor_ops_decode.executors.sources import TensorArrays
    from tensor_ops_decode.models import decoder_of
    from tensor_ops_decode.models.assembly import program_of
    from tensor_ops_decode.program.quantized import quantized_program

    step = 64
    limits = Limits(1, step, step, NUM_TOKENS, 16, NUM_TOKENS // 16)
    program = program_of(decoder_of(weights), weights, limits, cache)
    program = quantized_program(program, None, head)
    executable = backend.compile_program(
        program.to_json(), TensorArrays(program, {}, weights), options=options
    )
    arrays, logits = executable.arrays, []
    arrays["page_table"][0] = np.arange(limits.num_pages)
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        rows = range(len(part))
        arrays["tokens"][rows], arrays["positions"][rows] = (
            part,
            np.arange(start, start + len(part)),
        )
        arrays["selected"][rows] = rows
        executable.run(len(part), len(part))
        logits.append(arrays["logits"][rows].astype(np.float64))
    executable.close()
    return np.concatenate(logits)


def of_llama(model: Path, tokens: Any) -> Any:
    """Return the logits of llama.cpp after each token."""
    from llama_cpp import Llama  # type: ignore[import-not-found]

    engine = Llama(str(model), n_ctx=512, logits_all=True, verbose=False)
    engine.eval(tokens.tolist())
    return engine.scores[: len(tokens)]


def of_openvino(model: Path, tokens: Any, properties: dict[str, object] | None = None) -> Any:
    """Return the logits of OpenVINO GenAI's model of the file, compiled with `properties`."""
    import openvino  # type: ignore[import-not-found]
    import openvino_genai  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(model, folder)
        openvino_genai.LLMPipeline(copy, "CPU", enable_save_ov_model=True)
        made = Path(folder, "openvino_model.xml")
        compiled = openvino.Core().compile_model(made, "CPU", properties or {})
        count = len(tokens)
        inputs = {
            "input_ids": tokens[None],
            "attention_mask": np.ones((1, count), np.int64),
            "position_ids": np.arange(count)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        return compiled(inputs)["logits"][0]


def of_openvino_in_float32(model: Path, tokens: Any) -> Any:
    """Return the logits of OpenVINO GenAI in float32, without rounding activations or caches."""
    types = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    return of_openvino(model, tokens, types | {"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0})


OPENVINO, OPENVINO_FLOAT32 = "OpenVINO GenAI", "OpenVINO GenAI, float32"
PEERS = {
    "llama.cpp": of_llama,
    OPENVINO: of_openvino,
    OPENVINO_FLOAT32: of_openvino_in_float32,
}


def differences(logits: Any, right: Any) -> dict[str, float]:
    """Return how far logits are from the right ones, and their distributions from the right."""
    ours, theirs = (each - np.logaddexp.reduce(each, -1, keepdims=True) for each in (logits, right))
    divergence = (np.exp(theirs) * (theirs - ours)).sum(-1)
    return {
        "largest_difference": float(np.abs(logits - right).max()),
        "mean_divergence": float(divergence.mean()),
        "largest_divergence": float(divergence.max()),
        "other_best": int((logits.argmax(-1) != right.argmax(-1)).sum()),
    }


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the guide by name."""
    lines = [
        "| engine | largest difference of a logit | mean divergence | largest divergence |"
        f" another best token, of {record['tokens']} |",
        "|---|---|---|---|---|",
    ]
    engines = record["engines"] | record.get("dense", {}).get("engines", {})
    for name, found in engines.items():
        cells = [f"{found['largest_difference']:.2g}"]
        cells += [f"{found[key]:.1e}" for key in ("mean_divergence", "largest_divergence")]
        lines.append(f"| {name} | {' | '.join(cells)} | {found['other_best']} |")
    return {"accuracy": "\n".join(lines)}


if __name__ == "__main__":
    main()
