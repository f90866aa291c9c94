"""GGUF files: what ggml's writer writes is read, and nothing else is believed."""

import contextlib
import mmap
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from gguf_bytes import header, key, padded, small_gguf, string, tensor  # noqa: E402

from tensor_ops import TensorOpsError  # noqa: E402
from tensor_ops_decode.weights import FileFormatError, open_weights  # noqa: E402
from tensor_ops_decode.weights.gguf import GgufFile  # noqa: E402
from tensor_ops_decode.weights.model_file import MOST_BYTES  # noqa: E402


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return write


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


def touch_everything(file):
    """Decode all metadata and read each byte of each tensor, as far as its type is supported."""
    for name in file.metadata:
        with contextlib.suppress(FileFormatError):
            file.metadata[name]
    for name in file.names:
        with contextlib.suppress(FileFormatError):
            file.tensor(name).data.sum()


def test_metadata_is_what_the_library_reads(tmp_path):
    path = small_gguf(tmp_path / "a.gguf")
    metadata = open_weights(path).metadata
    fields = gguf.GGUFReader(path).fields
    expected = {
        name: each.contents() for name, each in fields.items() if not name.startswith("GGUF.")
    }
    assert {name: plain(value) for name, value in metadata.items()} == expected
    assert metadata["key.string"] == "naïve ☃"
    assert metadata["key.bool"] is True
    assert len(metadata) == len(expected)
    with pytest.raises(KeyError, match="no such key"):
        metadata["no such key"]


def test_tensors_are_what_the_library_reads(tmp_path):
    path = small_gguf(tmp_path / "a.gguf")
    file = open_weights(path)
    reader = gguf.GGUFReader(path)
    assert file.names == tuple(each.name for each in reader.tensors)
    for each in reader.tensors:
        tensor = file.tensor(each.name)
        assert tensor.type == each.tensor_type.name.lower()
        assert tensor.shape == tuple(each.shape.tolist()[::-1])
        assert tensor.data.tobytes() == each.data.tobytes()
        values = gguf.quants.dequantize(each.data, each.tensor_type)
        assert np.array_equal(tensor.values(), values.reshape(tensor.shape))


def test_a_tensor_is_a_read_only_view_of_the_mapped_file(tmp_path):
    data = open_weights(small_gguf(tmp_path / "a.gguf")).tensor("q8_0").data
    assert data.shape == (3, 68)
    assert not data.flags.writeable
    assert not data.flags.owndata
    base = data
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_a_tensor_that_is_not_there_is_a_key_error(tmp_path):
    with pytest.raises(KeyError, match=r"a\.gguf has no tensor 'none'"):
        open_weights(small_gguf(tmp_path / "a.gguf")).tensor("none")


def test_a_tensor_outlives_the_file_object(tmp_path):
    data = open_weights(small_gguf(tmp_path / "a.gguf")).tensor("f32").data
    assert np.isfinite(data.view(np.float32)).all()


def test_version_2_is_read(tmp_path, write):
    data = bytearray(small_gguf(tmp_path / "a.gguf").read_bytes())
    data[4] = 2
    file = open_weights(write(data))
    assert file.version == 2
    touch_everything(file)


def test_another_alignment_is_followed(write):
    begin = header(
        keys=[key("general.alignment", 4, struct.pack("<I", 256))],
        tensors=[tensor("a", (2,)), tensor("b", (2,), offset=256)],
    )
    values = struct.pack("<2f", 1, 2) + bytes(248) + struct.pack("<2f", 3, 4)
    file = open_weights(write(padded(begin, values, 256)))
    assert file.tensor("a").values().tolist() == [1, 2]
    assert file.tensor("b").values().tolist() == [3, 4]


U32, U64 = struct.Struct("<I").pack, struct.Struct("<Q").pack
BLOCK = bytes(256)
HOSTILE = {
    "another magic": (b"GGML" + bytes(60), r"magic number at offset 0: b'GGML'; expected b'GGUF'"),
    "version 1": (header(version=1), "version 1; expected 2 or 3"),
    "big endian": (b"GGUF" + bytes([0, 0, 0, 3]) + bytes(60), "the file is big endian"),
    "more keys than bytes": (header(num_keys=1 << 60), "the number of keys at offset 16: 1152921"),
    "more tensors than bytes": (header(num_tensors=1 << 63), "the number of tensors at offset 8"),
    "a long name": (
        header(num_keys=1) + U64(1 << 40) + bytes(64),
        "the name of key 0 at offset 24: 1099511627776 bytes; expected at most 65535",
    ),
    "a name past the end": (
        header(num_keys=1) + U64(60000) + bytes(64),
        "the name of key 0 at offset 32: it takes 60000 bytes; expected at most 64",
    ),
    "a name that is no text": (
        header(keys=[key(b"\xff\xfe", 4, U32(1))]),
        "the name of key 0 at offset 32: the bytes ff fe; expected UTF-8",
    ),
    "a key twice": (
        header(keys=[key("a", 4, U32(1)), key("a", 4, U32(2))]),
        "key 'a' at offset 41: it is there twice",
    ),
    "an unknown type": (header(keys=[key("a", 13, U32(1))]), "key 'a' at offset 33: type 13"),
    "a text past the end": (
        header(keys=[key("a", 8, U64((1 << 64) - 1) + b"abc")]),
        "key 'a' at offset 45: it takes 18446744073709551615 bytes; expected at most 3",
    ),
    "an array past the end": (
        header(keys=[key("a", 9, U32(11) + U64(1 << 61) + b"abc")]),
        "the number of elements of key 'a' at offset 41: 2305843009213693952",
    ),
    "texts past the end": (
        header(keys=[key("a", 9, U32(8) + U64(2) + string("b") + U64(1 << 62))]),
        "key 'a'",
    ),
    "an array of arrays": (
        header(keys=[key("a", 9, U32(9) + U64(0) + bytes(32))]),
        "an array of arrays; expected a type from 0 to 12",
    ),
    "an alignment of 24": (
        header(keys=[key("general.alignment", 4, U32(24))]),
        "key 'general.alignment' at offset 53: 24; expected a power of two",
    ),
    "an alignment of 0": (
        header(keys=[key("general.alignment", 4, U32(0))]),
        "0; expected a power of two",
    ),
    "an alignment that is a text": (
        header(keys=[key("general.alignment", 8, string("a"))]),
        "type 8; expected a power of two, as uint32",
    ),
    "a part of a split model": (
        header(keys=[key("split.count", 2, struct.pack("<H", 3))]),
        "part 1 of 3; expected a name that ends with -00001-of-00003.gguf",
    ),
    "no dimensions": (header(tensors=[tensor(shape=())]), "tensor 't' at .*: 0 dimensions"),
    "five dimensions": (header(tensors=[tensor(shape=(1,) * 5)]), "5 dimensions; expected 1 to 4"),
    "an empty tensor": (padded(header(tensors=[tensor(shape=(4, 0))]), BLOCK), "none empty"),
    "a product that wraps around": (
        padded(header(tensors=[tensor(shape=(1 << 32, 1 << 32))]), BLOCK),
        r"f32 of shape \[4294967296, 4294967296\]; expected rows .* within the file",
    ),
    "no whole blocks": (
        padded(header(tensors=[tensor(shape=(2, 48), kind=8)]), BLOCK),
        "whole blocks of 32",
    ),
    "a type that ggml has not": (
        padded(header(tensors=[tensor(kind=5)]), BLOCK),
        "tensor 't' at offset 45: type 5; expected a type that ggml has",
    ),
    "data past the end": (
        padded(header(tensors=[tensor(shape=(65,))]), BLOCK),
        "the data of tensor 't' at offset 64: it takes 260 bytes; expected at most 256",
    ),
    "an offset past the end": (
        padded(header(tensors=[tensor(offset=(1 << 64) - 32)]), BLOCK),
        "the data of tensor 't' at offset 18446744073709551648",
    ),
    "an offset that is not aligned": (
        padded(header(tensors=[tensor(offset=4)]), BLOCK),
        "the data's offset is 4; expected a multiple of 32",
    ),
    "a tensor twice": (
        padded(header(tensors=[tensor(), tensor(offset=128)]), BLOCK),
        "tensor 't' at offset 57: it is there twice",
    ),
    "overlapping tensors": (
        padded(header(tensors=[tensor("a", (64,)), tensor("b", offset=128)]), BLOCK),
        "the data of tensor 'b' at offset 224: it overlaps tensor 'a'; expected 352 or more",
    ),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_cannot_be_is_refused(data, message, write):
    path = write(data)
    with pytest.raises(FileFormatError, match=message) as raised:
        GgufFile(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert isinstance(raised.value, TensorOpsError)
    assert isinstance(raised.value, ValueError)


def test_a_text_that_is_none_is_refused_when_it_is_asked_for(write):
    keys = [
        key("a", 8, string(b"x\xff")),
        key("b", 9, U32(8) + U64(2) + string("y") + string(b"\xc0")),
    ]
    metadata = open_weights(write(header(keys=keys))).metadata
    with pytest.raises(
        FileFormatError, match=r"key 'a' at offset 46: the bytes ff; expected UTF-8"
    ):
        metadata["a"]
    with pytest.raises(FileFormatError, match=r"element 1 of key 'b' at .*: the bytes c0"):
        metadata["b"]


@pytest.mark.parametrize(
    ("begin", "size", "message"),
    [
        (header(num_keys=1 << 17), 1 << 21, "the number of keys at offset 16: 131072; exp"),
        (header(num_tensors=1 << 19), 1 << 24, "the number of tensors at offset 8: 524288; exp"),
        (
            header(num_keys=1) + string("a") + U32(9) + U32(8) + U64(1 << 23),
            1 << 27,
            "the number of elements of key 'a' at offset 41: 8388608; exp",
        ),
    ],
    ids=["keys", "tensors", "texts"],
)
def test_more_than_any_model_has_is_refused_however_long_the_file_is(write, begin, size, message):
    path = write(begin)
    os.truncate(path, size)
    with pytest.raises(FileFormatError, match=message):
        open_weights(path)


def test_a_text_that_is_longer_than_any_file_of_texts_is_refused(write):
    length = MOST_BYTES + 1
    path = write(header(keys=[key("a", 8, U64(length))]))
    os.truncate(path, path.stat().st_size + length)
    with pytest.raises(FileFormatError, match=f"key 'a' at .* {length} bytes; expected at most"):
        open_weights(path).metadata["a"]


def test_a_type_that_is_not_supported_is_refused_by_name(tmp_path):
    data = np.zeros((1, 40), np.uint8), gguf.GGMLQuantizationType.Q8_1
    file = open_weights(small_gguf(tmp_path / "a.gguf", {"w": data}))
    assert file.names == ("w",)
    with pytest.raises(FileFormatError, match="tensor 'w' is of type q8_1, which is not supported"):
        file.tensor("w")


def test_a_file_cut_anywhere_is_refused(tmp_path, write):
    path = small_gguf(tmp_path / "a.gguf", b=1)
    data = path.read_bytes()
    last = gguf.GGUFReader(path).tensors[-1]
    end = int(last.data_offset + last.n_bytes)
    assert end <= len(data)
    for length in range(end):
        with pytest.raises(FileFormatError):
            GgufFile(write(data[:length]))


def test_a_damaged_file_opens_or_is_refused(tmp_path, write):
    whole = small_gguf(tmp_path / "a.gguf").read_bytes()
    draw = random.Random(0)
    interesting = [0, 1, 8, 9, 0x7F, 0x80, 0xFF]
    num_opened = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 8])):
            place, width = draw.randrange(1200), draw.choice([1, 1, 4, 8])
            byte = draw.choice([*interesting, draw.randrange(256)])
            data[place : place + width] = bytes([byte]) * width
        try:
            file = GgufFile(write(data))
        except FileFormatError:
            continue
        num_opened += 1
        touch_everything(file)
    assert 200 < num_opened < 1900  # neither everything nor nothing


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_sparse_file_of_two_gigabytes_takes_no_memory_of_its_own(tmp_path):
    begin = header(tensors=[tensor("big", (1 << 19, 1 << 10)), tensor("end", (8,), offset=1 << 31)])
    path = tmp_path / "sparse.gguf"
    with open(path, "wb") as file:
        file.write(begin + bytes(-len(begin) % 32))
        file.truncate(file.tell() + (1 << 31) + 32)
    if path.stat().st_blocks > 1 << 12:
        pytest.skip("this file system has no sparse files")
    program = """
import sys
from tensor_ops_decode.weights import open_weights
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
file = open_weights(sys.argv[1])
big, end = file.tensor("big"), file.tensor("end")
assert big.data.shape == (1 << 19, 1 << 12), big.data.shape
assert not big.data[-1].any() and not end.values().any()
print(resident() - before)
"""
    command = [sys.executable, "-c", program, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(output.stdout) < 8 << 20


def test_opening_a_path_says_what_is_wrong_with_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file.*missing\.gguf"):
        open_weights(tmp_path / "missing.gguf")
    with pytest.raises(FileFormatError, match=r"the folder has no config\.json"):
        open_weights(tmp_path)
    path = tmp_path / "model.bin"
    path.write_bytes(b"PK\x03\x04zip")
    with pytest.raises(FileFormatError, match=r"got a file that begins with b'PK\\x03\\x04zip'"):
        open_weights(path)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="the file is empty"):
        open_weights(path)
    path.write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(FileFormatError, match="a safetensors file; give its folder"):
        open_weights(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_without_permission_is_a_permission_error(tmp_path):
    path = small_gguf(tmp_path / "a.gguf")
    Path(path).chmod(0)
    with pytest.raises(PermissionError):
        open_weights(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="is a pipe, no regular file"):
        open_weights(tmp_path / "pipe")
