"""A quantized tensor that a folder stores as several tensors."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensor_ops_decode.weights.mapped_file import FileFormatError, MappedFile
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, TensorPlace

__all__ = ["JoinedTensor", "integers_of"]


@dataclass(frozen=True)
class JoinedTensor(ABC):
    """The name of a quantized tensor, and the places of the tensors that it is made of.

    `ignored` has the places of further tensors, which the values are not computed from.
    """

    name: str
    parts: tuple[TensorPlace, ...]
    ignored: tuple[TensorPlace, ...] = ()

    @property
    def names_of_parts(self) -> tuple[str, ...]:
        """The names of all parts."""
        return tuple(part.name for part in (*self.parts, *self.ignored))

    @property
    def file(self) -> MappedFile:
        """The file of the first part."""
        return self.parts[0].file

    @abstractmethod
    def header(self) -> TensorHeader:
        """Return the type and the shape; raises FileFormatError if the parts do not fit."""

    @abstractmethod
    def open(self) -> StoredTensor:
        """Return the tensor; raises as `header`."""

    def stored(self, rows: NDArray[np.uint8]) -> StoredTensor:
        """Return the tensor of these rows."""
        header = self.header()
        data = rows.reshape(-1, rows.shape[-1])
        return StoredTensor(self.name, header.type, header.shape, data, header.file)

    def misfit(self, kind: str, expected: str) -> FileFormatError:
        """Return an error that says what the parts are."""
        return FileFormatError(
            f"{self.file.path}: {_words(self.parts)} are no {kind} weights; expected {expected}"
        )


def integers_of(place: TensorPlace, dtype: str) -> NDArray[Any]:
    """Return the integers of a part, in its shape."""
    return place.file.view(place.offset, place.size, place.what).view(dtype).reshape(place.shape)


def _words(parts: Iterable[TensorPlace]) -> str:
    return " and ".join(f"{part.what} of shape {list(part.shape)}" for part in parts)
