"""The weights of a model in the files they come in: GGUF, or a Hugging Face folder."""

from tensor_ops_decode.weights.files import open_weights
from tensor_ops_decode.weights.formats import FORMATS, Format
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.tensor import StoredTensor, Weights
from tensor_ops_decode.weights.transforms import apply_transforms

__all__ = [
    "FORMATS",
    "FileFormatError",
    "Format",
    "StoredTensor",
    "Weights",
    "apply_transforms",
    "open_weights",
]
