"""The stored tensors of a model together with those of an adapter, a file beside it."""

from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.weights.mapped_file import MappedFile
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, TensorPlace, Weights

__all__ = ["AdaptedWeights"]


class AdaptedWeights(Weights):
    """The weights of a model, and the tensors of an adapter.

    All that is said about the model is what `base` says.

    Parameters
    ----------
    base : Weights
    tensors : mapping of str to TensorPlace
        Those of the adapter, whose names no tensor of the model has.
    """

    def __init__(self, base: Weights, tensors: Mapping[str, TensorPlace]) -> None:
        self._base, self._tensors = base, tensors
        self.path, self.metadata = base.path, base.metadata
        self.quantization, self.activations = base.quantization, base.activations
        self.end_tokens = base.end_tokens

    @property
    def config(self) -> str:
        return self._base.config

    @property
    def generation_config(self) -> tuple[str, Mapping[str, Any]]:
        return self._base.generation_config

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._base.names, *self._tensors)

    def header(self, name: str) -> TensorHeader:
        return self._tensors[name].header() if name in self._tensors else self._base.header(name)

    def tensor(self, name: str) -> StoredTensor:
        return self._tensors[name].open() if name in self._tensors else self._base.tensor(name)

    def beginning(self, name: str, count: int) -> bytes:
        own = name in self._tensors
        return super().beginning(name, count) if own else self._base.beginning(name, count)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files of the model and of the adapter; none of a model in memory."""
        of_base = self._base.files
        own = dict.fromkeys(each.file for each in self._tensors.values())
        return (*of_base, *own) if of_base else ()

    def release_tensor(self, name: str) -> None:
        if name not in self._tensors:
            self._base.release_tensor(name)
