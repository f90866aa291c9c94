"""A reader of GGUF files: little endian, versions 2 and 3.

Opening reads the header only, without copying: metadata is decoded when asked for, tensors are
views of the mapped file. Every count, size and offset is compared with the size of the file before
it is used. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensor_ops_decode.weights.formats import GGML_TYPES, Format
from tensor_ops_decode.weights.mapped_file import FileFormatError, MappedFile
from tensor_ops_decode.weights.model_file import is_there
from tensor_ops_decode.weights.tensor import FileWeights, TensorPlace, check_places

__all__ = ["MAGIC", "GgufFile", "Metadata"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NAME = 65535  # bytes of a key, by the specification; names of tensors are shorter
# How much is taken into memory before it is understood. Files have some fifty keys, DeepSeek-V3 has
# 91,000 tensors in a folder and fewer in GGUF, and Gemma 3 has 515,000 merges.
MAX_KEYS, MAX_TENSORS, MAX_TEXTS = 1 << 16, 1 << 18, 1 << 22

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_UINT32, _STRING, _ARRAY = 4, 8, 9
_SCALARS = {
    number: struct.Struct(f"<{code}")
    for number, code in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
}
# Keys in the parts of a split file: the index of each, from 0, and how much there is in all.
_PART, _NUM_PARTS, _NUM_TENSORS = "split.no", "split.count", "split.tensors.count"
_MIN_ENTRY = 8 + 4 + 1  # an empty key, a type and a value of one byte
_MIN_TENSOR = 8 + 4 + 8 + 4 + 8  # an empty name, one dimension, a type and an offset


@dataclass(frozen=True)
class _Entry:
    """Where a value is; `count` is the elements of an array, or the bytes of a text."""

    type: int
    element: int
    count: int
    offset: int


class Metadata(Mapping[str, Any]):
    """The metadata of a GGUF file, each value decoded whenever it is asked for.

    Numbers are int, float and bool, texts are str. An array of numbers is a read-only NumPy array
    over the mapped file, an array of texts is a list: keep it instead of asking again.
    """

    def __init__(self, file: MappedFile, entries: dict[str, _Entry]) -> None:
        self._file = file
        self._entries = entries

    def __getitem__(self, key: str) -> Any:
        entry, file, what = self._entries[key], self._file, f"key {key!r}"
        if entry.type in _SCALARS:
            return file.unpack(_SCALARS[entry.type], entry.offset, what)
        if entry.type == _STRING:
            return file.text(entry.offset, entry.count, what)
        if entry.element == _STRING:
            return self._strings(entry, what)
        code = _SCALARS[entry.element].format
        data = file.view(entry.offset, entry.count * struct.calcsize(code), what)
        return data.view(np.dtype(code))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _strings(self, entry: _Entry, what: str) -> list[str]:
        file, offset, texts = self._file, entry.offset, []
        end = file.end_of_strings(offset, entry.count, what)
        data, start, unpack = file.read(offset, end - offset, what), 0, _U64.unpack_from
        for index in range(entry.count):
            begin = start + 8
            start = begin + unpack(data, start)[0]
            try:
                texts.append(data[begin:start].decode())
            except UnicodeDecodeError:
                file.text(offset + begin, start - begin, f"element {index} of {what}")
        return texts


class GgufFile(FileWeights):
    """A GGUF file, or all parts of one that is split.

    The path may be that of any part: they are opened together, and the first one has all metadata
    of the model. Raises FileFormatError if the file is not one, if a part is missing, or if what
    the file says cannot be; the error names the file, the key or the tensor, the offset, what is
    there and what was expected.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        parts = _open_parts(_FilePart(path))
        self.path, self.version, self.metadata = parts[0].path, parts[0].version, parts[0].metadata
        self._tensors: dict[str, TensorPlace] = {}
        for part in parts:
            for name in part.tensors.keys() & self._tensors.keys():
                other = self._tensors[name].file.path
                raise FileFormatError(f"{part.path}: tensor {name!r} is in {other} too")
            self._tensors.update(part.tensors)
        expected = self.metadata.get(_NUM_TENSORS)
        if len(parts) > 1 and expected != len(self._tensors):
            raise FileFormatError(
                f"{self.path}: key {_NUM_TENSORS!r} is {expected}, but the {len(parts)} parts have "
                f"{len(self._tensors)} tensors"
            )


def _open_parts(part: _FilePart) -> list[_FilePart]:
    """Return all parts of the file that one is of, which are beside it and named by number."""
    count = part.number_of(_NUM_PARTS, 1)
    if count <= 1:
        return [part]
    path, index = Path(part.path), part.number_of(_PART, 0)
    end = _end_of_name(index, count)
    if not path.name.endswith(end):
        raise FileFormatError(
            f"{path}: the file says that it is part {index + 1} of {count}; expected a name that "
            f"ends with {end}, and all other parts beside it"
        )
    begin, parts = path.name.removesuffix(end), []
    for other in range(count):
        beside = path.with_name(begin + _end_of_name(other, count))
        if not is_there(beside):
            raise FileFormatError(
                f"{path}: part {other + 1} of {count} is missing; expected {beside}"
            )
        parts.append(part if other == index else _FilePart(beside))
        for key, expected in ((_NUM_PARTS, count), (_PART, other)):
            given = parts[-1].number_of(key, None)
            if given != expected:
                raise FileFormatError(
                    f"{beside}: key {key!r} is {given}; expected {expected}, by its name and {path}"
                )
    return parts


def _end_of_name(index: int, count: int) -> str:
    return f"-{index + 1:05}-of-{count:05}.gguf"


class _FilePart:
    """One file: its metadata, and where its tensors are."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = file = MappedFile(path)
        self.path = file.path
        self._offset = 0
        magic = file.read(0, min(4, file.size), "the magic number")
        if magic != MAGIC:
            raise file.error("the magic number", 0, repr(magic), repr(MAGIC))
        self._offset = 4
        self.version = self._version()
        num_tensors = self._count(_MIN_TENSOR, "the number of tensors", MAX_TENSORS)
        num_entries = self._count(_MIN_ENTRY, "the number of keys", MAX_KEYS)
        self.metadata = Metadata(file, self._read_entries(num_entries))
        self.tensors = self._read_tensors(num_tensors, self._alignment())

    def number_of(self, key: str, default: int | None) -> Any:
        """Return the integer of a key."""
        value = self.metadata.get(key, default)
        if value is not default and type(value) is not int:
            raise FileFormatError(f"{self.path}: key {key!r} is no integer")
        return value

    def _version(self) -> int:
        offset = self._offset
        version = self._number(_U32, "the version")
        if version in VERSIONS:
            return version
        given, expected = f"version {version}", "2 or 3"
        if version & 0xFFFF == 0:
            given = "the file is big endian"
            expected = "little endian; gguf_convert_endian.py of llama.cpp converts it"
        raise self._file.error("the version", offset, given, expected)

    def _number(self, form: struct.Struct, what: str) -> int:
        value = self._file.unpack(form, self._offset, what)
        self._offset += form.size
        return int(value)

    def _count(self, smallest: int, what: str, limit: int | None = None) -> int:
        """Read how many things follow, if so many of at least `smallest` bytes fit in the file."""
        offset = self._offset
        count = self._number(_U64, what)
        most = (self._file.size - self._offset) // smallest
        if count > most:
            raise self._file.error(what, offset, str(count), f"at most {most} in a file this long")
        if limit is not None and count > limit:
            raise self._file.error(what, offset, str(count), f"at most {limit}")
        return count

    def _name(self, what: str) -> str:
        offset = self._offset
        length = self._number(_U64, what)
        if length > MAX_NAME:
            raise self._file.error(what, offset, f"{length} bytes", f"at most {MAX_NAME}")
        name = self._file.text(self._offset, length, what)
        self._offset += length
        return name

    def _read_entries(self, count: int) -> dict[str, _Entry]:
        entries: dict[str, _Entry] = {}
        for index in range(count):
            offset = self._offset
            key = self._name(f"the name of key {index}")
            if key in entries:
                raise self._file.error(f"key {key!r}", offset, "it is there twice", "one")
            entries[key] = self._entry(f"key {key!r}")
        return entries

    def _entry(self, what: str) -> _Entry:
        offset = self._offset
        kind = self._number(_U32, f"the type of {what}")
        element, count = kind, 1
        if kind == _STRING:
            count = self._number(_U64, f"the length of {what}")
        elif kind == _ARRAY:
            offset = self._offset
            element = self._number(_U32, f"the type of the elements of {what}")
            counted = f"the number of elements of {what}"
            if element == _STRING:
                count = self._count(8, counted, MAX_TEXTS)
            else:
                count = self._count(_SCALARS.get(element, _U32).size, counted)
        if element not in _SCALARS and element != _STRING:
            given = "an array of arrays" if element == _ARRAY else f"type {element}"
            raise self._file.error(what, offset, given, "a type from 0 to 12")
        begin = self._offset
        if kind == _ARRAY and element == _STRING:
            self._offset = self._file.end_of_strings(begin, count, what)
        else:
            size = count * (1 if kind == _STRING else _SCALARS[element].size)
            self._file.check(begin, size, what)
            self._offset += size
        return _Entry(kind, element, count, begin)

    def _alignment(self) -> int:
        key = "general.alignment"
        entry = self.metadata._entries.get(key)
        if entry is None:
            return DEFAULT_ALIGNMENT
        value = self.metadata[key] if entry.type == _UINT32 else 0
        if value.bit_count() != 1:
            given = str(value) if entry.type == _UINT32 else f"type {entry.type}"
            raise self._file.error(f"key {key!r}", entry.offset, given, "a power of two, as uint32")
        return int(value)

    def _read_tensors(self, count: int, alignment: int) -> dict[str, TensorPlace]:
        found = {}
        for index in range(count):
            offset = self._offset
            name = self._name(f"the name of tensor {index}")
            if name in found:
                raise self._file.error(f"tensor {name!r}", offset, "it is there twice", "one")
            found[name] = self._tensor_info(f"tensor {name!r}", alignment)
        start = -(-self._offset // alignment) * alignment
        tensors = {
            name: TensorPlace(self._file, name, form, shape, start + offset, size)
            for name, (form, shape, offset, size) in found.items()
        }
        check_places(list(tensors.values()))
        return tensors

    def _tensor_info(self, what: str, alignment: int) -> tuple[Format, tuple[int, ...], int, int]:
        """Return a tensor's format, shape, offset in the data section, and size."""
        file, begin = self._file, self._offset
        num_dimensions = self._number(_U32, f"the number of dimensions of {what}")
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            given = f"{num_dimensions} dimensions"
            raise file.error(what, begin, given, f"1 to {MAX_DIMENSIONS}")
        # The file has the fastest dimension first, NumPy has it last.
        sizes = [self._number(_U64, f"the shape of {what}") for _ in range(num_dimensions)]
        shape = tuple(reversed(sizes))
        number = self._number(_U32, f"the type of {what}")
        form = GGML_TYPES.get(number)
        if form is None:
            raise file.error(what, self._offset - 4, f"type {number}", "a type that ggml has")
        size = math.prod(shape) // form.block_size * form.block_bytes
        if not 0 < size <= file.size or shape[-1] % form.block_size:
            expected = f"rows of whole blocks of {form.block_size}, none empty, within the file"
            raise file.error(what, begin, f"{form.name} of shape {list(shape)}", expected)
        offset = self._number(_U64, f"the offset of {what}")
        if offset % alignment:
            given = f"the data's offset is {offset}"
            raise file.error(what, self._offset - 8, given, f"a multiple of {alignment}")
        return form, shape, offset, size
