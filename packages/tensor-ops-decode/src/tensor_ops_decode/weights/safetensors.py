"""A reader of Hugging Face folders: config.json beside safetensors files, one or in shards.

A safetensors file is the length of a JSON header as a uint64, the header, and the data. It is
mapped, as a GGUF file is; the library's safe_open copies each tensor instead. The format:
https://github.com/huggingface/safetensors#format
"""

import json
import math
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from tensor_ops_decode.weights.formats import FORMATS, Format
from tensor_ops_decode.weights.joined import with_parts_joined
from tensor_ops_decode.weights.mapped_file import MappedFile
from tensor_ops_decode.weights.model_file import FileFormatError, is_there, read_model_text
from tensor_ops_decode.weights.tensor import FileWeights, TensorPlace, check_places

__all__ = [
    "CONFIG",
    "SafetensorsFolder",
    "header_of",
    "open_safetensors",
    "read_json",
    "read_json_if_there",
    "read_json_list",
]

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000  # bytes, as the library has it
# In the JSON of one file, since a value takes up to thirty times the bytes of its text. A tensor
# has eight in a header, and one in an index: DeepSeek-V3 has 91,000 tensors with its scales.
MOST_VALUES = 1 << 21
MAX_DIMENSIONS = 8
ALIGNMENT = 4096  # of the data in files that are written here, for those that map them

# A dtype that is not supported has only its size here, and not every one is known.
_DTYPES: dict[str, Format | tuple[str, int]] = {
    **{name: FORMATS[name.lower()] for name in ("F32", "F16", "BF16")},
    **{name: (name, 8) for name in ("F64", "I64", "U64", "C64")},
    **{name: (name, 4) for name in ("I32", "U32")},
    **{name: (name, 2) for name in ("I16", "U16")},
    **{name: (name, 1) for name in ("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0")},
}


class SafetensorsFolder(FileWeights):
    """A folder with the files of a model as Hugging Face names them; the metadata are config.json.

    Raises FileFormatError if a file says what cannot be, or a tensor of the index is not in its
    shard.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(Path(path))
        self.metadata = read_json(Path(path, CONFIG))
        quantization = self.metadata.get("quantization_config")
        given = quantization if isinstance(quantization, Mapping) else {}
        self.quantization = json.dumps(given, sort_keys=True) if given else ""
        self._tensors = with_parts_joined(self._read(), given)

    @property
    def config(self) -> str:
        return f"{self.path}/{CONFIG}"

    @property
    def generation_config(self) -> tuple[str, Mapping[str, Any]]:
        path = Path(self.path, GENERATION_CONFIG)
        return str(path), read_json_if_there(path)

    def _read(self) -> dict[str, TensorPlace]:
        single, index = Path(self.path, SINGLE), Path(self.path, INDEX)
        if is_there(single):
            return open_safetensors(single)[0]
        if not is_there(index):
            raise FileFormatError(f"{self.path}: expected {SINGLE} or {INDEX} beside {CONFIG}")
        shard_of = read_json(index).get("weight_map")
        if not isinstance(shard_of, dict):
            raise FileFormatError(f"{index}: expected an object as 'weight_map'")
        for name, shard in shard_of.items():
            # A name with a folder in it could lead anywhere.
            if not isinstance(shard, str) or Path(shard).name != shard:
                expected = "the name of a file in the folder"
                raise FileFormatError(f"{index}: tensor {name!r}: {shard!r}; expected {expected}")
        shards = {name: open_safetensors(Path(self.path, name))[0] for name in {*shard_of.values()}}
        for name, shard in shard_of.items():
            if name not in shards[shard]:
                raise FileFormatError(f"{index}: tensor {name!r} is not in {shard}")
        return {name: shards[shard][name] for name, shard in shard_of.items()}


def open_safetensors(
    path: str | os.PathLike[str],
) -> tuple[dict[str, TensorPlace], Mapping[str, Any]]:
    """Return where the tensors of one safetensors file are, by name, and its metadata.

    Raises FileFormatError if the file is not one, or what its header says cannot be.
    """
    file = MappedFile(path)
    length = int(file.unpack(struct.Struct("<Q"), 0, "the length of the header"))
    if length > min(MAX_HEADER, file.size - 8):
        expected = f"at most {min(MAX_HEADER, file.size - 8)}"
        raise file.error("the length of the header", 0, str(length), expected)
    header = _parse(file.path, file.text(8, length, "the header"))
    metadata = header.pop("__metadata__", None)
    tensors = {name: _tensor(file, name, info, 8 + length) for name, info in header.items()}
    check_places(list(tensors.values()))
    return tensors, metadata if isinstance(metadata, dict) else {}


def header_of(
    metadata: Mapping[str, str], tensors: Mapping[str, tuple[str, Sequence[int], int]]
) -> bytes:
    """Return what stands before the data in a file of tensors, one behind the other.

    The tensors have dtype, shape and bytes, in the order of their data.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        begin, end = end, end + size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text = text.ljust(-(-(8 + len(text)) // ALIGNMENT) * ALIGNMENT - 8)
    return len(text).to_bytes(8, "little") + text


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON object in a file; it is a FileFormatError if that holds something else."""
    return _parse(os.fspath(path), read_model_text(path, "utf-8-sig"))


def read_json_if_there(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if there is no file."""
    return read_json(path) if is_there(path) else {}


def read_json_list(path: str | os.PathLike[str]) -> list[Any]:
    """Return the JSON array in a file; it is a FileFormatError if that holds something else."""
    found = _value(os.fspath(path), read_model_text(path, "utf-8-sig"))
    if not isinstance(found, list):
        raise FileFormatError(f"{path}: expected a JSON array, got {type(found).__name__}")
    return found


def _parse(path: str, text: str) -> dict[str, Any]:
    value = _value(path, text)
    if not isinstance(value, dict):
        raise FileFormatError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def _value(path: str, text: str) -> Any:
    if (count := sum(map(text.count, "[{,"))) > MOST_VALUES:
        raise FileFormatError(
            f"{path}: the JSON has about {count} values; expected at most {MOST_VALUES}"
        )
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: the JSON cannot be read: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key {twice!r} is there twice")
    return made


def _tensor(file: MappedFile, name: str, info: object, start: int) -> TensorPlace:
    what = f"tensor {name!r}"
    if not isinstance(info, Mapping):
        raise file.error(what, 8, repr(info)[:80], "an object with dtype, shape and data_offsets")
    dtype, shape, place = (info.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise file.error(what, 8, f"dtype {dtype!r}"[:80], "the name of a dtype")
    if not _are_sizes(shape):
        raise file.error(what, 8, f"shape {shape!r}"[:80], "a list of sizes")
    if not _are_sizes(place) or len(place) != 2 or place[1] < place[0]:
        raise file.error(what, 8, f"data_offsets {place!r}"[:80], "where its data begin and end")
    size = place[1] - place[0]
    known = _DTYPES.get(dtype)
    width = known.block_bytes if isinstance(known, Format) else known[1] if known else None
    if width is not None and math.prod(shape) * width != size:
        given = f"{size} bytes of {dtype} for the shape {shape}"[:120]
        raise file.error(what, start + place[0], given, "as many as the shape has")
    form = known if isinstance(known, Format) else dtype
    return TensorPlace(file, name, form, tuple(shape), start + place[0], size)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        return False
    return all(type(each) is int and 0 <= each < 1 << 63 for each in value)
