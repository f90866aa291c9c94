"""Hugging Face folders: what the safetensors library writes is read, and nothing else believed."""

import contextlib
import json
import random
import struct

import numpy as np
import pytest

from tensor_ops_decode.weights import FileFormatError, StoredTensor, apply_transforms, open_weights
from tensor_ops_decode.weights.safetensors import open_safetensors

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.linspace(-1, 1, 5).astype(np.float16),
    "c": np.full((1, 2, 3), 7, np.float32),
}


def packed(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def info(dtype="F32", shape=(2,), place=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(place)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return tmp_path


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "model.safetensors"
        path.write_bytes(data)
        return path

    return write


def test_a_file_of_the_library_is_read(folder):
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file(ARRAYS, folder / "model.safetensors", {"format": "pt"})
    weights = open_weights(folder)
    assert weights.metadata == {"model_type": "llama"}
    assert set(weights.names) == set(ARRAYS)
    for name, array in ARRAYS.items():
        tensor = weights.tensor(name)
        assert tensor.shape == array.shape
        assert tensor.data.tobytes() == array.tobytes()
        assert tensor.data.shape[0] * array.shape[-1] == array.size
        assert not tensor.data.flags.writeable
        assert np.array_equal(tensor.values(), array.astype(np.float32))


def test_bfloat16_is_raw_bytes_and_its_values_are_torchs(folder):
    torch = pytest.importorskip("torch")
    x = torch.randn(3, 5, generator=torch.manual_seed(0)).bfloat16()
    pytest.importorskip("safetensors.torch").save_file({"x": x}, folder / "model.safetensors")
    tensor = open_weights(folder).tensor("x")
    assert (tensor.type, tensor.data.shape) == ("bf16", (3, 10))
    assert np.array_equal(tensor.values(), x.float().numpy())


def test_shards_are_one_model(folder, tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    shards = {"1-of-2.safetensors": ["a"], "2-of-2.safetensors": ["b", "c"]}
    for shard, names in shards.items():
        numpy.save_file({name: ARRAYS[name] for name in names}, folder / shard)
    index = {"weight_map": {name: shard for shard, names in shards.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    weights = open_weights(folder)
    assert weights.names == ("a", "b", "c")
    assert weights.tensor("b").file.endswith("2-of-2.safetensors")
    for name, array in ARRAYS.items():
        assert np.array_equal(weights.tensor(name).values(), array.astype(np.float32))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"x": "../model.safetensors"}}, "tensor 'x': '../model.safetensors'; exp"),
        ({"weight_map": {"x": "/etc/passwd"}}, "expected the name of a file in the folder"),
        ({"weight_map": {"x": 3}}, "tensor 'x': 3; expected the name of a file"),
        ({"weight_map": {"x": "one.safetensors"}}, "tensor 'x' is not in one.safetensors"),
        ({"weight_map": []}, "expected an object as 'weight_map'"),
        ([], "expected a JSON object, got list"),
    ],
)
def test_an_index_that_cannot_be_is_refused(index, message, folder):
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "one.safetensors").write_bytes(packed({}))
    with pytest.raises(FileFormatError, match=message):
        open_weights(folder)


def test_a_shard_that_is_missing_is_named(folder):
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone"}}')
    with pytest.raises(FileNotFoundError, match="gone"):
        open_weights(folder)


def test_a_folder_without_weights_is_refused(folder):
    with pytest.raises(FileFormatError, match=r"expected model\.safetensors or model\.safe"):
        open_weights(folder)


HUGE = 1 << 62
HOSTILE = {
    "empty": (b"", "the file is empty"),
    "no length": (b"1234567", "the length of the header at offset 0: it takes 8 bytes"),
    "a long header": (struct.pack("<Q", HUGE) + b"{}", r"offset 0: \d+; expected at most 2"),
    "no text": (packed(b"\xff"), "the header at offset 8: the bytes ff; expected UTF-8"),
    "no JSON": (packed(b"{"), "the JSON cannot be read"),
    "deep JSON": (packed(b"[" * 100_000), "the JSON cannot be read"),
    "a long number": (packed(b'{"x": ' + b"9" * 5000 + b"}"), "the JSON cannot be read"),
    "a list": (packed([]), "expected a JSON object, got list"),
    "a name twice": (packed(b'{"x": 1, "x": 2}'), "key 'x' is there twice"),
    "no object": (packed({"x": 3}), "tensor 'x' at offset 8: 3; expected an object"),
    "no dtype": (packed({"x": {}}), "tensor 'x' at offset 8: dtype None"),
    "a negative size": (packed({"x": info(shape=(-2,))}), r"shape \[-2\]; expected a list"),
    "a size that is true": (packed({"x": info(shape=(True, 2))}), r"shape \[True, 2\]"),
    "many dimensions": (packed({"x": info(shape=(1,) * 9)}), "expected a list of sizes"),
    "one offset": (packed({"x": info(place=(0,))}), r"data_offsets \[0\]"),
    "backwards": (packed({"x": info(place=(8, 0))}), r"data_offsets \[8, 0\]"),
    "another size": (
        packed({"x": info(place=(0, 4))}, bytes(8)),
        r"4 bytes of F32 for the shape \[2\]; expected as many as the shape has",
    ),
    "a size that wraps around": (
        packed({"x": info(shape=(HUGE, 4), place=(0, 0))}),
        "0 bytes of F32 for the shape",
    ),
    "data past the end": (
        packed({"x": info()}, bytes(7)),
        "the data of tensor 'x' at offset 69: it takes 8 bytes; expected at most 7",
    ),
    "far past the end": (
        packed({"x": info("I8", (1,), (HUGE, HUGE + 1))}, bytes(8)),
        "the data of tensor 'x' at offset 461168601842738",
    ),
    "overlapping": (
        packed({"x": info(), "y": info(place=(4, 12))}, bytes(12)),
        "the data of tensor 'y' at offset .*: it overlaps tensor 'x'",
    ),
}


@pytest.mark.parametrize(("data", "message"), HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_cannot_be_is_refused(data, message, write):
    path = write(data)
    with pytest.raises(FileFormatError, match=message) as raised:
        open_safetensors(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_a_dtype_that_is_not_supported_is_refused_by_name_when_it_is_used(folder, write):
    write(packed({"ids": info("I64", (1,)), "new": info("F4", (16,), (8, 16))}, bytes(16)))
    weights = open_weights(folder)
    with pytest.raises(FileFormatError, match="tensor 'ids' is of type I64, which is not supp"):
        weights.tensor("ids")
    with pytest.raises(FileFormatError, match="tensor 'new' is of type F4, which is not supp"):
        weights.tensor("new")


def test_a_tensor_without_values_is_refused_when_it_is_used(folder, write):
    write(packed({"x": info(shape=(0, 4), place=(0, 0))}))
    with pytest.raises(FileFormatError, match=r"tensor 'x' of shape \[0, 4\] has no values"):
        open_weights(folder).tensor("x")


def test_a_scalar_is_a_tensor_of_one_value(folder, write):
    write(packed({"x": info(shape=(), place=(0, 4))}, struct.pack("<f", 2.5)))
    assert open_weights(folder).tensor("x").values().tolist() == [2.5]


def test_data_that_are_not_aligned_are_read(folder, write):
    data = packed(json.dumps({"x": info()}).encode() + b" ", struct.pack("<2f", 1, 2))
    path = write(data)
    assert (len(data) - 8) % 4
    assert open_weights(path.parent).tensor("x").values().tolist() == [1, 2]


def test_a_damaged_file_opens_or_is_refused(write):
    header = {"x": info(), "y": info("F16", (2, 3), (8, 20)), "__metadata__": {"format": "pt"}}
    whole = packed(header, bytes(range(20)))
    draw = random.Random(0)
    num_opened = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 2, 8])):
            data[draw.randrange(len(data) - 20)] = draw.choice(b'0123456789[]{},:"aF\xff\x00\x80')
        data = data[: draw.choice([len(data)] * 9 + [draw.randrange(len(data))])]
        try:
            tensors, _ = open_safetensors(write(data))
        except FileFormatError:
            continue
        num_opened += 1
        for tensor in tensors.values():
            with contextlib.suppress(FileFormatError):
                tensor.open().data.sum()
    assert 50 < num_opened < 1900


def stored(array, kind="f32"):
    data = np.atleast_2d(array).reshape(-1, array.shape[-1]).view(np.uint8)
    return StoredTensor("w", kind, array.shape, data, "model.gguf")


def test_transpose_swaps_rows_and_columns_of_each_float_type():
    for kind, dtype in (("f32", np.float32), ("f16", np.float16)):
        x = np.arange(6, dtype=dtype).reshape(2, 3)
        tensor = apply_transforms(stored(x, kind), ["transpose"])
        assert (tensor.type, tensor.shape, tensor.data.dtype) == (kind, (3, 2), np.uint8)
        assert np.array_equal(tensor.values(), x.T.astype(np.float32))


def test_plus_one_is_added_in_float32():
    tensor = apply_transforms(stored(np.full(3, 1e-3, np.float16), "f16"), ["plus_one"])
    assert (tensor.type, tensor.shape, tensor.data.shape) == ("f32", (3,), (1, 12))
    assert np.array_equal(tensor.values(), np.full(3, np.float16(1e-3), np.float32) + np.float32(1))


def test_no_transforms_leave_the_very_tensor():
    tensor = stored(np.zeros((2, 2), np.float32))
    assert apply_transforms(tensor, []) is tensor


@pytest.mark.parametrize(
    ("tensor", "name", "message"),
    [
        (
            stored(np.zeros(2, np.float32)),
            "twice",
            "'twice' is unknown; expected transpose, flatten, plus",
        ),
        (stored(np.zeros(2, np.float32)), "transpose", r"shape \(2,\) cannot be transposed"),
        (
            StoredTensor("w", "q8_0", (32,), np.zeros((1, 34), np.uint8), "a.gguf"),
            "plus_one",
            "a.gguf: tensor 'w' is of type q8_0, to which 'plus_one' does not apply",
        ),
    ],
)
def test_a_transform_that_does_not_apply_is_an_error(tensor, name, message):
    with pytest.raises(ValueError, match=message):
        apply_transforms(tensor, [name])
