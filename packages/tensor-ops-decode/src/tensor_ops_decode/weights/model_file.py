"""How each file of a model is opened, and how much of one is read before it is understood."""

import io
import os
from pathlib import Path
from typing import BinaryIO

from tensor_ops import TensorOpsError
from tensor_ops.extension import WrongFileError, open_regular

__all__ = [
    "MOST_BYTES",
    "FileFormatError",
    "is_there",
    "open_model_file",
    "read_model_file",
    "read_model_text",
]

# The limit of a file, or of one value in it, that is read as a whole. The longest of public models
# are the tokenizer.json of Gemma 3, with 33 MB, and headers of safetensors, which may have 100 MB.
MOST_BYTES = 1 << 27


class FileFormatError(TensorOpsError, ValueError):
    """A model's file is truncated, contradicts itself, or has what is not supported."""


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether a model has a file or a folder of this name.

    A link that leads nowhere is a FileFormatError: what it led to belongs to the model.
    """
    if Path(path).exists():
        return True
    if os.path.islink(path):
        raise FileFormatError(
            f"{os.fspath(path)}: the link is broken, it leads to {os.readlink(path)!r}; download "
            "the model again"
        )
    return False


def open_model_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of a model.

    Raises FileFormatError if it is a pipe or a device, is empty, or is a pointer of git LFS or an
    HTML page; and if it is a link that leads nowhere.
    """
    is_there(path)  # which names a broken link
    try:
        return open_regular(path)
    except WrongFileError as error:
        raise FileFormatError(str(error)) from None


def read_model_file(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file; it raises as `open_model_file`, and for too large a file."""
    with open_model_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise FileFormatError(
                f"{os.fspath(path)}: the file has {size} bytes; expected at most {MOST_BYTES}"
            )
        return file.read(size)


def read_model_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return the text in a file, with its lines ended by newlines alone.

    It raises as `read_model_file`, and FileFormatError for what is not UTF-8.
    """
    data = io.BytesIO(read_model_file(path))
    try:
        return io.TextIOWrapper(data, encoding).read()
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{os.fspath(path)}: {error}; expected UTF-8 text") from None
