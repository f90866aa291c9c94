"""Small GGUF files for tests, made by ggml's own writer or byte by byte."""

import struct

import gguf
import numpy as np


def small_gguf(path, tensors=None, **keys):
    """Write a file with a few tensors and a key of each type, and return its path."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("key.uint8", 8)
    writer.add_int8("key.int8", -8)
    writer.add_uint16("key.uint16", 16)
    writer.add_int16("key.int16", -16)
    writer.add_int32("key.int32", -32)
    writer.add_uint64("key.uint64", 1 << 63)
    writer.add_int64("key.int64", -(1 << 62))
    writer.add_float32("key.float32", 1.5)
    writer.add_float64("key.float64", 0.1)
    writer.add_bool("key.bool", True)
    writer.add_string("key.string", "naïve ☃")
    writer.add_string("key.empty", "")
    writer.add_array("key.strings", ["a", "", "ćç"])
    writer.add_array("key.ints", [3, -1, 4])
    writer.add_array("key.floats", [0.5, 2.0])
    writer.add_array("key.bools", [True, False])
    for key, value in keys.items():
        writer.add_uint32(key.replace("__", "."), value)
    if tensors is None:
        draw = np.random.default_rng(0)
        tensors = {
            "f32": (draw.standard_normal((2, 3), np.float32), None),
            "f16": (draw.standard_normal(5).astype(np.float16), None),
            "q8_0": (draw.integers(0, 60, (3, 68), np.uint8), gguf.GGMLQuantizationType.Q8_0),
            "q4_1": (draw.integers(0, 60, (2, 20), np.uint8), gguf.GGMLQuantizationType.Q4_1),
            "experts": (draw.standard_normal((2, 3, 4), np.float32), None),
        }
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    """The bytes of a key; the value is bytes already."""
    return string(name) + struct.pack("<I", kind) + value


def tensor(name="t", shape=(32,), kind=0, offset=0):
    """The bytes of a tensor's description, with the shape in NumPy's order."""
    shape = shape[::-1]
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + sizes + struct.pack("<IQ", kind, offset)


def header(*, version=3, keys=(), tensors=(), num_keys=None, num_tensors=None):
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    return b"".join([b"GGUF", struct.pack("<IQQ", version, *counts), *keys, *tensors])


def padded(begin, data, alignment=32):
    return begin + bytes(-len(begin) % alignment) + data
