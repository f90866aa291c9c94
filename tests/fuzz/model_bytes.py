"""The bytes of GGUF and safetensors files of anything, right or wrong."""

import json
import math
import struct

from tensor_ops_decode.weights.formats import FORMATS

__all__ = ["gguf", "key", "keys_of", "replace", "safetensors", "string", "tensor", "tensors_of"]

MOST_BYTES = 1 << 16  # of a tensor; one that says it is larger is given too short


def replace(path, content):
    """Write a new file: what is mapped is never written again."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def string(text):
    return struct.pack("<Q", len(text)) + text


def gguf(keys, tensors, data):
    begin = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join([*keys, *tensors])
    return begin + bytes(-len(begin) % 32) + data


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def tensor(name, kind, *sizes, offset=0):
    count = len(sizes)
    return string(name) + struct.pack(f"<I{count}QIQ", count, *sizes, kind, offset)


def safetensors(header, data=b""):
    return string(json.dumps(header).encode()) + data


def keys_of(values):
    """Return the keys of a GGUF file for values of Python; those that it cannot have are left out.

    A list is an array of the type of its first element.
    """
    found = []
    for name, value in values.items():
        if isinstance(value, list):
            elements = [_value(each) for each in value] or [(4, b"")]
            if None in elements:
                continue
            kind = elements[0][0]
            alike = [data for other, data in elements if other == kind and data]
            found.append(
                key(name.encode(), 9, struct.pack("<IQ", kind, len(alike)) + b"".join(alike))
            )
        elif (made := _value(value)) is not None:
            found.append(key(name.encode(), *made))
    return found


def _value(value):
    """Return the type and the bytes of a scalar or a text."""
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, str):
        return 8, string(value.encode())
    if isinstance(value, int) and 0 <= value < 1 << 32:
        return 4, struct.pack("<I", value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return (10, struct.pack("<Q", value)) if value >= 0 else (11, struct.pack("<q", value))
    return (12, struct.pack("<d", value)) if isinstance(value, (int, float)) else None


# The values and the bytes of a block. Those in capitals are of folders alone.
TYPES = {name: (form.block_size, form.block_bytes) for name, form in FORMATS.items()}
TYPES |= {"I32": (1, 4), "F8_E4M3": (1, 1)}


def tensors_of(described):
    """Return where tensors of some types and shapes lie, one behind the other, and their data.

    Parameters
    ----------
    described : dict
        ``{name: {"type": name, "shape": [rows, columns]}}``; what is something else is left out.

    Returns
    -------
    list of (name, type, shape, begin, end), bytes
    """
    found, end = [], 0
    for name, info in described.items() if isinstance(described, dict) else ():
        if not isinstance(info, dict):
            continue
        kind, shape = info.get("type"), info.get("shape")
        sizes = TYPES.get(kind) if isinstance(kind, str) else None
        if sizes is None or not isinstance(shape, list) or not shape:
            continue
        if not all(type(each) is int and 0 <= each < 1 << 63 for each in shape):
            continue
        size = math.prod(shape) // sizes[0] * sizes[1]
        size = size if size <= MOST_BYTES else 32
        found.append((name, kind, shape, end, end + size))
        end += -(-size // 32) * 32
    return found, struct.pack("<f", 1.0) * (end // 4)
