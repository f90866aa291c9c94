"""The readers of GGUF and safetensors on any bytes: a model or a FileFormatError."""

import contextlib
import struct
import tempfile
from pathlib import Path

from model_bytes import gguf, key, replace, safetensors, string, tensor

from tensor_ops_decode.weights.formats import FORMATS
from tensor_ops_decode.weights.gguf import MAGIC, GgufFile
from tensor_ops_decode.weights.mapped_file import FileFormatError
from tensor_ops_decode.weights.safetensors import open_safetensors

__all__ = ["try_input"]


SEEDS = [
    gguf([key(b"a", 8, string(b"text"))], [tensor(b"t", 0, 2)], bytes(8)),
    gguf([key(b"general.alignment", 4, struct.pack("<I", 32))], [], b""),
    gguf([key(b"a", 9, struct.pack("<IQ", 8, 2) + string(b"b") + string(b""))], [], b""),
    gguf([key(b"a", 9, struct.pack("<IQ3h", 3, 3, 1, 2, 3))], [], b""),
    gguf([key(b"split.count", 2, b"\2\0"), key(b"b", 7, b"\1")], [], b""),
    gguf([], [tensor(b"q", 8, 32, 1)], bytes(34)),
    safetensors({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    safetensors({"__metadata__": {}, "y": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}),
]
DICTIONARY = [
    "GGUF", "general.alignment", "split.count", "dtype", "shape", "data_offsets", "BF16", "F16",
    "__metadata__", "[]", "{}", "\0\0\0\0", "\x7f\0\0\0", "9223372036854775807", "1e999", "-1",
]  # fmt: skip
_folder = tempfile.TemporaryDirectory(prefix="fuzz-model-files-")
PATH = Path(_folder.name, "model")


def try_input(data):
    replace(PATH, data)
    try:
        opened = _opened(data)
    except FileFormatError as error:
        message = str(error)
        assert message.startswith(f"{PATH}: "), message
        assert len(message) < 2000, message
        return
    # Accepted tensors can be read to the last byte.
    for read in opened:
        with contextlib.suppress(FileFormatError):
            tensor = read()
            assert tensor.type in FORMATS
            assert tensor.values().shape == tensor.shape


def _opened(data):
    if not data.startswith(MAGIC):
        return [stored.open for stored in open_safetensors(PATH)[0].values()]
    file = GgufFile(PATH)
    for name in file.metadata:
        with contextlib.suppress(FileFormatError):
            file.metadata[name]
    return [lambda name=name: file.tensor(name) for name in file.names]
