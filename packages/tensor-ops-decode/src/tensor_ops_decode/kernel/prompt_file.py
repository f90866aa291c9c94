"""What the caches have of a prompt, in a file: pages of keys and values, and states.

The file is one of safetensors: ``tokens``, ``pages`` with a row of bytes for each page and, of a
model with states, ``states`` with those after the last token. Its metadata say what the rows depend
on beside the tokens, each by its name, and have a checksum of each tensor.

Tested by tests/decode/scheduling/test_kept_prompts.py.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tensor_ops.extension import check_owner
from tensor_ops_decode.executors.packed_file import new_file
from tensor_ops_decode.kernel.opening import KernelModel
from tensor_ops_decode.kernel.rank_facts import beginnings_of
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.weights import FileFormatError
from tensor_ops_decode.weights.safetensors import header_of, open_safetensors

__all__ = ["KeptPrompt", "facts_of", "read_prompt_file", "write_prompt_file"]

FORMAT = "tensor-ops prompt 1"
CHECKSUMS = "checksums"


class KeptPrompt(NamedTuple):
    """Tokens that fill whole pages, with a row of bytes for each, and one for the states."""

    tokens: list[int]
    pages: Array
    states: Array | None


def facts_of(model: KernelModel, options: Mapping[str, object]) -> dict[str, str]:
    """Return what the rows of a prompt depend on, by its name in messages.

    Other processors compute other bits, and other backends have other pages.
    """
    executor = model.planned.executor
    facts = {
        "format": FORMAT,
        "backend": executor.backend,
        "version of the backend": str(getattr(executor.module, "__version__", None)),
        "instruction set": str(getattr(executor.module, "simd_level", None)),
        "options of the backend": json.dumps(dict(options), sort_keys=True, default=str),
        "page_size": str(model.planned.program.limits.page_size),
        "program": _digest_of(model.planned.program),
    }
    if model.weights is not None:
        facts["weights"] = beginnings_of(model.weights, model.planned.program)
        facts["quantization_config"] = model.weights.quantization
    return facts


def write_prompt_file(
    path: str | os.PathLike[str], prompt: KeptPrompt, model: KernelModel, facts: Mapping[str, str]
) -> None:
    """Write a prompt as a whole or not at all, in the place of a file that is there."""
    checksum = _checksum_of(model)
    place = Path(path)
    arrays = {"tokens": np.array(prompt.tokens, np.int32), "pages": prompt.pages}
    if prompt.states is not None:
        arrays["states"] = prompt.states
    checksums = {name: checksum(array) for name, array in arrays.items()}
    header = header_of(
        {**facts, CHECKSUMS: json.dumps(checksums)},
        {
            name: ("I32" if name == "tokens" else "U8", array.shape, array.nbytes)
            for name, array in arrays.items()
        },
    )
    temporary = place.with_name(f"{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        with new_file(temporary):
            with open(temporary, "r+b") as file:
                file.write(header)
                for array in arrays.values():
                    file.write(np.ascontiguousarray(array).data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_prompt_file(
    path: str | os.PathLike[str], model: KernelModel, facts: Mapping[str, str]
) -> KeptPrompt:
    """Return what a file has, mapped, if it was written where these facts were the same.

    Raises FileFormatError if it was not, or is damaged, and ConfigError if others can write it.
    """
    tensors, metadata = open_safetensors(path)
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{os.fspath(path)}: it is no file of save_prompt()")
    for name, value in facts.items():
        if metadata.get(name) != value:
            raise FileFormatError(
                f"{os.fspath(path)}: {name} was {metadata.get(name)!r:.60}, and is {value!r:.60} "
                "now; save the prompt again"
            )
    if not {"tokens", "pages"} <= tensors.keys() <= {"tokens", "pages", "states"}:
        raise FileFormatError(f"{os.fspath(path)} is damaged: it has {', '.join(tensors)}"[:200])
    end = max(each.offset + each.size for each in tensors.values())
    if end != tensors["pages"].file.size:
        raise FileFormatError(f"{os.fspath(path)} is damaged: it has bytes behind the last tensor")
    check_owner(Path(path), tensors["pages"].file.status, "save the prompt elsewhere")
    written, checksum = _parsed(path, metadata.get(CHECKSUMS)), _checksum_of(model)
    found: dict[str, NDArray[Any]] = {}
    for name, each in tensors.items():
        found[name] = each.file.view(each.offset, each.size, each.what)
        if written.get(name) != checksum(found[name]):
            raise FileFormatError(
                f"{os.fspath(path)} is damaged: {each.what} was changed after it was written"
            )
    shape = tensors["pages"].shape
    pages = found["pages"].reshape(shape)
    tokens = found["tokens"].view(np.int32).tolist()
    size = int(facts["page_size"])
    if len(shape) != 2 or not tokens or len(tokens) != shape[0] * size:
        raise FileFormatError(
            f"{os.fspath(path)} is damaged: {len(tokens)} tokens for pages of shape {shape}"
        )
    return KeptPrompt(tokens, pages, found.get("states"))


def _parsed(path: str | os.PathLike[str], text: object) -> dict[str, Any]:
    try:
        parsed = json.loads(str(text))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise FileFormatError(f"{os.fspath(path)} is damaged: there are no checksums")
    return parsed


def _checksum_of(model: KernelModel) -> Callable[[Array], str]:
    """Return the checksum of the backend, which its threads compute, or zlib's."""
    of_backend = getattr(model.planned.executor.module, "packed_checksum", None)

    def checksum(array: Array) -> str:
        whole = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        return str(of_backend(whole)) if of_backend is not None else f"{crc32(whole.data):08x}"

    return checksum


def _digest_of(program: Program) -> str:
    """Return a digest of what a program computes, whatever its limits and where its files are."""
    whole = json.loads(program.to_json())
    del whole["limits"]
    for tensor in whole["tensors"].values():
        source = tensor["source"]
        source.pop("file", None)
        if "rotary" in source:  # whose rows are as many as a sequence may have
            del tensor["shape"]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
