"""A stored tensor: its type, its shape, and its bytes where they are."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tensor_ops_decode.weights.formats import FORMATS, Format
from tensor_ops_decode.weights.mapped_file import FileFormatError, MappedFile

__all__ = [
    "FileWeights",
    "Place",
    "StoredTensor",
    "TensorHeader",
    "TensorPlace",
    "Weights",
    "check_places",
]


@dataclass(frozen=True)
class TensorHeader:
    """The header of a tensor, known before it is read, with attributes as of `StoredTensor`."""

    type: str
    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a model, not copied.

    The `type` is the name of its format, such as ``"q4_1"``, and the `shape` the logical one,
    ``(rows, columns)`` or ``(columns,)``. The `data` are the rows as they are stored, uint8
    ``(rows, row_bytes)``, read-only where they are part of a mapped file. The `file` is the one
    that it is from, or the model in memory.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
    file: str

    @property
    def format(self) -> Format:
        """How its values are stored."""
        return FORMATS[self.type]

    def values(self, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Return the values, computed in float32, as an array of the logical shape."""
        return self.format.dequantize(self.data, self.shape[-1], dtype).reshape(self.shape)


@dataclass(frozen=True)
class TensorPlace:
    """Where in a file a tensor is, checked against the size of the file when it is made.

    `format` is the name of a type that is not one of `FORMATS`, and then `size` is its size.
    """

    file: MappedFile
    name: str
    format: Format | str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def what(self) -> str:
        """The tensor in words, for errors."""
        return f"tensor {self.name!r}"

    @property
    def parts(self) -> tuple["TensorPlace"]:
        """The tensor itself, which is whole."""
        return (self,)

    def header(self) -> TensorHeader:
        """Return the header of the tensor; raises as `open`."""
        found = self.open()
        return TensorHeader(found.type, found.shape, found.file)

    def open(self) -> StoredTensor:
        """Return the tensor as a view of the file."""
        form, path = self.format, self.file.path
        if isinstance(form, str) or not form.is_supported:
            name = form if isinstance(form, str) else form.name
            raise FileFormatError(
                f"{path}: {self.what} is of type {name}, which is not supported; supported are "
                + ", ".join(FORMATS)
            )
        data = self.file.view(self.offset, self.size, self.what)
        shape = self.shape or (1,)
        if self.size == 0:
            raise FileFormatError(f"{path}: {self.what} of shape {list(shape)} has no values")
        rows = math.prod(shape[:-1])
        return StoredTensor(
            self.name, form.name, shape, data.reshape(rows, self.size // rows), path
        )


class Weights(ABC):
    """The stored tensors of a model, and what is said about it beside them.

    Attributes
    ----------
    path : str
        The file or folder of the model; of one in memory, what errors call it.
    metadata : mapping
        The metadata of a GGUF file, or what config.json says.
    quantization : str
        What decides on the meaning of the parts of quantized weights; "" where there are none.
    activations : str or None
        What a kernel rounds activations to by default, where its backend is faster with that.
    end_tokens : frozenset of int or None
        What ends an answer besides what the metadata say, once a tokenizer has been asked.
    """

    path: str
    metadata: Mapping[str, Any]
    quantization: str = ""
    activations: str | None = None
    end_tokens: frozenset[int] | None = None

    @property
    def config(self) -> str:
        """The place of the metadata in words, for errors."""
        return self.path

    @property
    def generation_config(self) -> tuple[str, Mapping[str, Any]]:
        """The place and the content of generation_config.json, empty without it."""
        return self.path, {}

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the tensors."""

    @abstractmethod
    def header(self, name: str) -> TensorHeader:
        """Return the type and the shape of a tensor, without reading it; raises as `tensor`."""

    @abstractmethod
    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor.

        Raises KeyError if there is none of that name, and a FileFormatError if its type is not
        supported.
        """

    def beginning(self, name: str, count: int) -> bytes:
        """Return the first `count` bytes of each stored part of a tensor."""
        data = self.tensor(name).data.reshape(-1).view(np.uint8)
        return data[:count].tobytes()

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files that have the tensors, which do not change; none of a model in memory."""
        return ()

    def release_memory(self) -> None:
        """Give back the memory of what was read, which is read again where it is needed."""
        for file in self.files:
            file.release_memory()

    @abstractmethod
    def release_tensor(self, name: str) -> None:
        """Give up a tensor of which no array will be made again, if it is in memory."""


class Place(Protocol):
    """Where in files a tensor is, in one part or in several."""

    @property
    def parts(self) -> Sequence[TensorPlace]: ...

    def header(self) -> TensorHeader: ...

    def open(self) -> StoredTensor: ...


class FileWeights(Weights):
    """The tensors of files, which are mapped."""

    _tensors: Mapping[str, Place]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def header(self, name: str) -> TensorHeader:
        return self._place(name).header()

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor as a view of its mapped file, or put together of several."""
        return self._place(name).open()

    def _place(self, name: str) -> Place:
        if name not in self._tensors:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        return self._tensors[name]

    def beginning(self, name: str, count: int) -> bytes:
        parts = self._place(name).parts
        return b"".join(
            part.file.read(part.offset, min(part.size, count), part.what) for part in parts
        )

    @property
    def files(self) -> tuple[MappedFile, ...]:
        parts = (part for tensor in self._tensors.values() for part in tensor.parts)
        return tuple(dict.fromkeys(part.file for part in parts))

    def release_tensor(self, name: str) -> None:
        """Do nothing: executors give back the memory of a file as they pack it."""


def check_places(tensors: list[TensorPlace]) -> None:
    """Raise FileFormatError if a tensor is outside its file or two share bytes."""
    previous: TensorPlace | None = None
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        tensor.file.check(tensor.offset, tensor.size, f"the data of {tensor.what}")
        if previous is not None and tensor.offset < previous.offset + previous.size:
            raise tensor.file.error(
                f"the data of {tensor.what}",
                tensor.offset,
                f"it overlaps {previous.what}",
                f"{previous.offset + previous.size} or more",
            )
        previous = tensor
