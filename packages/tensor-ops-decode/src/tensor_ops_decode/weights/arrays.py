"""The weights of a model that is in memory: arrays of NumPy, PyTorch or JAX, under their names."""

import ctypes
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensor_ops.extension import numpy_view
from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.tensor import StoredTensor, TensorHeader, Weights

__all__ = ["FLOAT_TYPES", "ArrayWeights", "DeferredArray"]

#: The types of tensors that arrays of these dtypes are.
FLOAT_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}

# Freed memory is returned to the system by so many bytes of released tensors: that takes time.
_RETURNED_AT_ONCE = 32 << 20


@dataclass(frozen=True)
class DeferredArray:
    """An array that is made when it is packed.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        float32, float16 or bfloat16.
    make : callable
        Returns the array.

    Examples
    --------
    >>> import numpy as np
    >>> DeferredArray((2, 3), "float32", lambda: np.zeros((2, 3), np.float32)).shape
    (2, 3)
    """

    shape: tuple[int, ...]
    dtype: str
    make: Callable[[], Any]


class ArrayWeights(Weights):
    """A model in memory, as `PersistentKernel` takes it for ``model``.

    Nothing is copied: the kernel packs what is in the arrays when it is compiled, and looks up the
    rows of the embedding in its array at each step. So the arrays must not change after that.

    Parameters
    ----------
    config : mapping
        What config.json would say, with ``architectures``.
    tensors : mapping of str to array or DeferredArray
        The tensors by the names that they have in files of Hugging Face. Arrays of float32, float16
        or bfloat16 in host memory, of NumPy or with DLPack.
    generation_config : mapping, optional
        What generation_config.json would say.
    name : str, optional
        What errors call the model.
    release : callable, optional
        Called with the name of each tensor of which no array will be made again, so that its owner
        can give it up. A kernel that has it can be compiled once, and cannot be exported.
    activations : {"bfloat16"}, optional
        What the library of the model rounds activations to. A kernel without `activations` and
        `quantize` rounds them to it too, where the backend has instructions for such products.

    Raises
    ------
    FileFormatError
        If a tensor is of another dtype.
    ValueError
        If `activations` is something else.

    Examples
    --------
    >>> import numpy as np
    >>> weights = ArrayWeights({}, {"norm": np.ones(4, np.float32)})
    >>> weights.header("norm").type, weights.tensor("norm").values()
    ('f32', array([1., 1., 1., 1.], dtype=float32))
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, Any],
        *,
        generation_config: Mapping[str, Any] | None = None,
        name: str = "the model in memory",
        release: Callable[[str], None] | None = None,
        activations: str | None = None,
    ) -> None:
        if activations not in (None, "bfloat16"):
            raise ValueError(
                f"activations of ArrayWeights must be 'bfloat16' or None, got {activations!r}; "
                "give other types to the kernel"
            )
        self.path, self.metadata, self.activations = name, config, activations
        self._generation_config = generation_config or {}
        self._tensors, self._release = tensors, release
        self._num_released = 0  # bytes
        self._headers = {each: self._header(each, array) for each, array in tensors.items()}

    @property
    def config(self) -> str:
        return f"the configuration of {self.path}"

    @property
    def generation_config(self) -> tuple[str, Mapping[str, Any]]:
        return f"the generation configuration of {self.path}", self._generation_config

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._headers)

    def header(self, name: str) -> TensorHeader:
        if name not in self._headers:
            raise KeyError(f"{self.path} has no tensor {name!r}")
        return self._headers[name]

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor as a view of its array, if that is C-contiguous."""
        header, given = self.header(name), self._tensors[name]
        made = given.make() if isinstance(given, DeferredArray) else given
        array = numpy_view("ArrayWeights", name, made)
        dtype, shape = _dtype_of(given), tuple(given.shape)
        if (str(array.dtype), array.shape) != (dtype, shape):
            raise ValueError(
                f"{self.path}: tensor {name!r} is {array.dtype} of shape {array.shape}; expected "
                f"{dtype} of shape {shape}, as it was announced"
            )
        array = np.ascontiguousarray(array).reshape(header.shape)
        rows = array.size // array.shape[-1]
        data = array.reshape(rows, -1).view(np.uint8)
        return StoredTensor(name, header.type, header.shape, data, header.file)

    def release_tensor(self, name: str) -> None:
        if self._release is None:
            return
        self._release(name)
        header = self._headers[name]
        self._num_released += math.prod(header.shape) * FORMATS[header.type].block_bytes
        if self._num_released >= _RETURNED_AT_ONCE:
            self._num_released = 0
            _return_freed_memory()

    def _header(self, name: str, array: Any) -> TensorHeader:
        dtype, shape = _dtype_of(array), tuple(map(int, array.shape))
        if dtype not in FLOAT_TYPES:
            raise FileFormatError(
                f"{self.path}: tensor {name!r} is of dtype {dtype}, which is not supported; "
                f"supported are {', '.join(FLOAT_TYPES)}"
            )
        if 0 in shape:
            raise FileFormatError(f"{self.path}: tensor {name!r} of shape {shape} has no values")
        return TensorHeader(FLOAT_TYPES[dtype], shape or (1,), self.path)


def _return_freed_memory() -> None:
    """Have malloc give back the pages of what was freed, which glibc may keep for itself."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _dtype_of(array: Any) -> str:
    """Return the name of a dtype in any library: ``torch.float32`` is ``float32``."""
    return str(array.dtype).rpartition(".")[2]
