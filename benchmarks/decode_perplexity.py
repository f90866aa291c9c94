"""The perplexity of a GGUF model in every format that its weights can be quantized to.

The matrices of the model are read as float32, quantized by the package ``gguf``, and written as a
GGUF file of each format, which this engine and llama.cpp read. The text is that of some decisions.

    python benchmarks/decode_perplexity.py MODEL.gguf --peers-python /path/to/bin/python
    python benchmarks/decode_accuracy.py --report

The first writes ``results/decode_perplexity.json``, the second the tables of the guide. llama.cpp
is that of the package ``cyllama``, which the interpreter ``--peers-python`` imports. ``--heads``
quantizes the matrix of the logits to other formats than the rest, for this engine alone, and writes
``results/decode_heads.json``.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pages import ROOT

RECORD = ROOT / "benchmarks" / "results" / "decode_perplexity.json"
TEXTS = sorted((ROOT / "docs" / "decisions").glob("000*.md"))
CONTEXT, NUM_TOKENS = 256, 2048
FORMATS = ("f32", "bf16", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "mxfp4")
# By what the activations of a product with integer weights are rounded to.
ACTIVATIONS = ("float32", "int8x2")
LLAMA_CPP = "llama.cpp"
HEADS_RECORD = RECORD.with_name("decode_heads.json")
HEADS = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--heads", action="store_true", help="measure matrices of logits")
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(json.dumps(of_llama_cpp(options.model, json.loads(options.peer.read_text()))))
        return
    if options.heads:
        record, path, made = measure_heads(options.model), HEADS_RECORD, heads
    else:
        record, path, made = measure(options.model, options.peers_python), RECORD, blocks
    text = json.dumps(record, indent=1) + "\n"
    (options.json or path).write_text(text, encoding="utf-8")
    print(*made(record).values(), sep="\n")


def measure(model: Path, peers_python: str) -> dict[str, Any]:
    """Return the perplexities of a model in each format, by each engine."""
    tokens, about = given_text(model)
    formats = {}
    with tempfile.TemporaryDirectory() as folder:
        given, file = Path(folder, "tokens.json"), Path(folder, "model.gguf")
        given.write_text(json.dumps(tokens), encoding="utf-8")
        for kind in FORMATS:
            write(model, file, kind)
            found = {f"cpp, activations {each}": ours(file, tokens, each) for each in ACTIVATIONS}
            words = [peers_python, __file__, str(file), "--peer", str(given)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if not done.returncode:
                found[LLAMA_CPP] = json.loads(done.stdout.splitlines()[-1])
            formats[kind] = found
            print(kind, found, flush=True)
    return about | {"formats": formats}


def measure_heads(model: Path) -> dict[str, Any]:
    """Return the perplexities and the bytes of a token, by the format of the rest and the head."""
    tokens, about = given_text(model)
    found: dict[str, dict[str, Any]] = {kind: {} for kind in HEADS}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.gguf")
        write(model, file, "f32")
        for kind in HEADS:
            for head in HEADS:
                given = {"quantize": kind, "quantize_head": head}
                value, read = perplexity_of(file, tokens, "int8x2", **given)
                found[kind][head] = {"perplexity": value, "bytes": read}
                print(kind, head, found[kind][head], flush=True)
    return about | {"heads": found}


def given_text(model: Path) -> tuple[list[int], dict[str, Any]]:
    """Return the tokens, and what a record says of them and of the machine."""
    from tensor_ops_decode import open_weights
    from tensor_ops_decode.text import open_tokenizer
    from threads import facts

    text = "\n".join(path.read_text(encoding="utf-8") for path in TEXTS)
    tokens = open_tokenizer(open_weights(model)).encode(text)[:NUM_TOKENS]
    return tokens, facts() | {
        "model": model.name,
        "text": hashlib.sha256(text.encode()).hexdigest(),
        "tokens": len(tokens),
        "context": CONTEXT,
    }


def write(model: Path, to: Path, kind: str) -> None:
    """Write a GGUF file again, with all of its matrices in a format."""
    import gguf

    reader = gguf.GGUFReader(model)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(to, architecture)
    for name, field in reader.fields.items():
        own = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")
        if not name.startswith(own):
            item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=item)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        stored = gguf.GGMLQuantizationType[kind.upper()] if values.ndim == 2 else None
        data = values if stored is None else gguf.quants.quantize(values, stored)
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ours(model: Path, tokens: list[int], activations: str) -> float:
    """Return the perplexity by this engine."""
    return perplexity_of(model, tokens, activations)[0]


def perplexity_of(
    model: Path, tokens: list[int], activations: str, **given: str
) -> tuple[float, int]:
    """Return the perplexity by this engine, and how many bytes of weights a token reads."""
    from tensor_ops_decode import load, perplexity

    limits = {"max_seq_length": CONTEXT, "max_num_batched_requests": 64, "max_num_pages": CONTEXT}
    with load(model, backend="cpp", activations=activations, **limits, **given) as opened:
        reads = opened.kernel.explain().reads.weights
        read = sum(sum(of_types.values()) for of_types in reads.values())
        return perplexity(opened, tokens, context=CONTEXT).value, read


def of_llama_cpp(model: Path, tokens: list[int]) -> float:
    """Return the perplexity by llama.cpp's logits, with what its tool makes of them."""
    import cyllama.llama.llama_cpp as engine  # type: ignore[import-not-found]

    class Model(engine.LlamaModel):  # type: ignore[misc]
        @property
        def n_vocab(self) -> int:  # which the package itself asks a model for
            return int(self.get_vocab().n_vocab)

    opened = Model(path_model=str(model), params=engine.LlamaModelParams(), verbose=False)
    params = engine.LlamaContextParams()
    params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
    found = []
    for start in range(0, len(tokens) // CONTEXT * CONTEXT, CONTEXT):
        context = engine.LlamaContext(opened, params, verbose=False)
        batch = engine.LlamaBatch(n_tokens=CONTEXT, embd=0, n_seq_max=1)
        for position in range(CONTEXT):
            batch.add(tokens[start + position], position, [0], True)
        context.decode(batch)
        for position in range(CONTEXT // 2, CONTEXT - 1):
            logits = np.array(context.get_logits_ith(position), np.float64)
            following = logits[tokens[start + position + 1]]
            found.append(np.logaddexp.reduce(logits) - following)
    return float(np.exp(np.mean(found)))


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the table of the guide by its name."""
    engines = list(record["formats"]["f32"])
    lines = [f"| matrices | {' | '.join(engines)} |", "|---" * (len(engines) + 1) + "|"]
    for kind, found in record["formats"].items():
        cells = [f"{found[each]:.3f}" if each in found else "" for each in engines]
        lines.append(f"| {kind.upper()} | {' | '.join(cells)} |")
    return {"perplexity": "\n".join(lines)}


def blocks_of_page() -> dict[str, str]:
    """Return the tables of the guide, of the records."""
    found = {}
    for path, made in ((RECORD, blocks), (HEADS_RECORD, heads)):
        found |= made(json.loads(path.read_text(encoding="utf-8")))
    return found


def heads(record: dict[str, Any]) -> dict[str, str]:
    """Return the table of heads by its name."""
    lines = [f"| the rest | {' | '.join(f'head {each.upper()}' for each in HEADS)} |"]
    lines.append("|---" * (len(HEADS) + 1) + "|")
    for kind, found in record["heads"].items():
        cells = [
            f"{found[each]['perplexity']:.2f}, {found[each]['bytes'] / 1e6:.1f} MB"
            if each in found
            else ""
            for each in HEADS
        ]
        lines.append(f"| {kind.upper()} | {' | '.join(cells)} |")
    return {"heads": "\n".join(lines)}


if __name__ == "__main__":
    main()
