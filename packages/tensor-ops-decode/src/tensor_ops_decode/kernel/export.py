"""A model in a folder that programs without Python can run: its step, its tensors and a few facts.

The folder has three files. ``program.json`` is the program, and names each tensor in the file
beside it. ``weights.safetensors`` has the tensors as the program wants them: quantized already,
with the rotary tables computed. ``model.json`` says the rest: which tokens end an answer, in which
outputs the logits and the next token are, and the sizes of the model.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Program, Tensor
from tensor_ops_decode.program.step_rules import check_tensors, vocabulary
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.safetensors import header_of

__all__ = ["ModelFacts", "export_model"]

FORMAT, VERSION = "tensor-ops model", 1
MODEL, PROGRAM, WEIGHTS = "model.json", "program.json", "weights.safetensors"

# The dtypes of safetensors; tensors in blocks are stored as the bytes of their rows.
_DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


@dataclass(frozen=True)
class ModelFacts:
    """Facts that a runner must know of a model beside its program.

    Attributes
    ----------
    name : str
        Of the file or folder that it was made from.
    logits, tokens : str
        The outputs of the program that have the logits, and the tokens that a step chose.
    start_token : int
        The token that begins a text.
    end_tokens : frozenset of int
        The tokens that end an answer.
    activations : str or None
        The type that activations are rounded to, unless the runner says otherwise.
    """

    name: str
    logits: str
    tokens: str
    start_token: int
    end_tokens: frozenset[int]
    activations: str | None


def export_model(
    folder: str | os.PathLike[str],
    program: Program,
    arrays: Mapping[str, Array],
    facts: ModelFacts,
    progress: Callable[[int, int], None] = lambda done, size: None,
) -> None:
    """Write a model into a new folder, as a whole or not at all.

    The folder must not exist yet; the one that it is in must. `progress` is called with the bytes
    of tensors that are written, and of all.
    """
    if not os.fspath(folder):
        raise ValueError("the path of the folder is empty; give the name of a new folder")
    target = Path(folder)
    if target.exists() or target.is_symlink():
        raise FileExistsError(
            f"{target}: exists already; give the name of a new folder, or delete it first"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{target.parent}: is no folder; create it first")
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        exported = _exported_program(program)
        with _new_file(temporary / WEIGHTS) as file:
            digest = _write_tensors(file, exported, arrays, progress)
        with _new_file(temporary / PROGRAM) as file:
            file.write(exported.to_json().encode() + b"\n")
        with _new_file(temporary / MODEL) as file:
            text = json.dumps(_description(exported, facts, digest), indent=2)
            file.write(text.encode() + b"\n")
        os.rename(temporary, target)
    except BaseException as error:
        # Where a disk is full, the system names no file; else it may name a temporary one.
        if isinstance(error, OSError) and error.errno is not None and error.filename2 is None:
            named = str(error.filename or temporary)
            error.filename = str(target) if named.startswith(str(temporary)) else named
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _exported_program(program: Program) -> Program:
    """Return the program with all of its tensors in the file of the export, as they are."""
    tensors = {
        name: dataclasses.replace(tensor, source={"file": WEIGHTS, "tensor": name, "transform": []})
        for name, tensor in program.tensors.items()
    }
    return dataclasses.replace(program, tensors=tensors)


def _description(program: Program, facts: ModelFacts, digest: str) -> dict[str, Any]:
    """Return what stands in ``model.json``."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": facts.name,
        "weights_sha256": digest,
        "logits": facts.logits,
        "tokens": facts.tokens,
        "vocabulary_size": vocabulary(program),
        "context_length": program.limits.longest,
        "num_layers": sum(KINDS[node.kind].cache is not None for node in program.nodes),
        "start_token": facts.start_token,
        "end_tokens": sorted(facts.end_tokens),
        "activations": facts.activations,
    }


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to be written, which is on the disk when the context ends."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_tensors(
    file: BinaryIO,
    program: Program,
    arrays: Mapping[str, Array],
    progress: Callable[[int, int], None],
) -> str:
    """Write all tensors as a file of safetensors, and return the SHA-256 of their bytes.

    The header has the digest too. It is known in the end, so that the header is written again.
    """
    # As the library of safetensors does: larger elements first, so that each lies aligned.
    tensors = dict(
        sorted(program.tensors.items(), key=lambda each: _element_size(each[1]), reverse=True)
    )
    size = sum(tensor.num_bytes for tensor in tensors.values())
    digest, done = hashlib.sha256(), 0
    file.write(_header(tensors, digest.hexdigest()))
    for name, tensor in tensors.items():
        array = arrays[name]
        check_tensors(program, {name: array}, [name])
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest.update(data)
        file.write(data)
        done += tensor.num_bytes
        progress(done, size)
    file.seek(0)
    file.write(_header(tensors, digest.hexdigest()))
    return digest.hexdigest()


def _header(tensors: Mapping[str, Tensor], digest: str) -> bytes:
    """Return what stands before the data: its length is the same for every digest."""
    metadata = {"format": f"{FORMAT} {VERSION}", "sha256": digest}
    return header_of(
        metadata,
        {
            name: (_DTYPES.get(tensor.type, "U8"), _stored_shape(tensor), tensor.num_bytes)
            for name, tensor in tensors.items()
        },
    )


def _stored_shape(tensor: Tensor) -> tuple[int, ...]:
    columns = tensor.shape[-1] if tensor.type in _DTYPES else tensor.row_bytes
    return (*tensor.shape[:-1], columns)


def _element_size(tensor: Tensor) -> int:
    return FORMATS[tensor.type].block_bytes if tensor.type in _DTYPES else 1
