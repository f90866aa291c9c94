"""The weights of a model: in GGUF, in a Hugging Face folder, or in memory."""

import errno
import os
from pathlib import Path

from tensor_ops_decode.weights.arrays import ArrayWeights, DeferredArray
from tensor_ops_decode.weights.formats import FORMATS, Format
from tensor_ops_decode.weights.gguf import MAGIC, GgufFile
from tensor_ops_decode.weights.model_file import FileFormatError, is_there, open_model_file
from tensor_ops_decode.weights.safetensors import CONFIG, SafetensorsFolder
from tensor_ops_decode.weights.tensor import StoredTensor, Weights
from tensor_ops_decode.weights.transforms import apply_transforms

__all__ = [
    "FORMATS",
    "ArrayWeights",
    "DeferredArray",
    "FileFormatError",
    "Format",
    "StoredTensor",
    "Weights",
    "apply_transforms",
    "open_weights",
]


def open_weights(path: str | os.PathLike[str]) -> GgufFile | SafetensorsFolder:
    """Open a model: a GGUF file, or a Hugging Face folder.

    What is there decides, not its name. Files are mapped, not read: a tensor takes memory only
    when it is used, and none that the system cannot take back.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    GgufFile or SafetensorsFolder

    Raises
    ------
    FileFormatError
        If there is no model there, or its files are damaged or not supported.
    OSError
        If there is nothing there, or it cannot be read.
    TypeError
        If `path` is no path.

    Examples
    --------
    >>> open_weights("missing.gguf")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'missing.gguf'
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a text or path-like, got {path!r:.80}")
    place = Path(path)
    if not is_there(place):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    if place.is_dir():
        if is_there(place / CONFIG):
            return SafetensorsFolder(place)
        raise FileFormatError(
            f"{place}: the folder has no {CONFIG}; expected a Hugging Face model or a GGUF file"
        )
    with open_model_file(place) as file:
        begin = file.read(16)
    if begin[:4] == MAGIC:
        return GgufFile(place)
    if begin[8:9] == b"{":
        found = f"a safetensors file; give its folder, which has {CONFIG}"
    else:
        found = f"a file that begins with {begin!r}"
    raise FileFormatError(f"{place}: expected a GGUF file or a Hugging Face folder, got {found}")
