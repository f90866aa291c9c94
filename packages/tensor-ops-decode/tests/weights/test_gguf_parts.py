"""GGUF files in parts: any of them opens all, and what is missing or contradicts is named."""

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from gguf_bytes import header, key, padded, tensor  # noqa: E402

from tensor_ops_decode.weights import FileFormatError, open_weights  # noqa: E402

TENSORS = {f"t{i}": np.full((2, 3), i, np.float32) for i in range(5)}


@pytest.fixture
def parts(tmp_path):
    """Three parts as ggml's writer names them, of two tensors each but for the last."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    writer.add_uint32("llama.block_count", 7)
    for name, values in TENSORS.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [tmp_path / f"m-{i:05}-of-00003.gguf" for i in (1, 2, 3)]


def small_part(index=0, count=2, tensors=2, name="t"):
    """The bytes of a part of one tensor."""
    keys = [
        key("split.no", 2, index.to_bytes(2, "little")),
        key("split.count", 2, count.to_bytes(2, "little")),
        key("split.tensors.count", 5, tensors.to_bytes(4, "little")),
    ]
    return padded(header(keys=keys, tensors=[tensor(name)]), bytes(128))


@pytest.mark.parametrize("first", range(3))
def test_any_part_opens_all(parts, first):
    weights = open_weights(parts[first])
    assert weights.path == str(parts[0])
    assert weights.metadata["llama.block_count"] == 7
    assert weights.names == tuple(TENSORS)
    for i, (name, values) in enumerate(TENSORS.items()):
        assert np.array_equal(weights.tensor(name).values(), values)
        assert weights.tensor(name).file == str(parts[i // 2])


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_part_is_named(parts, missing):
    parts[missing].unlink()
    for left in set(parts) - {parts[missing]}:
        with pytest.raises(FileFormatError, match=f"part {missing + 1} of 3 is missing.*{missing}"):
            open_weights(left)


def test_a_broken_link_in_the_place_of_a_part_is_named(parts):
    parts[1].unlink()
    parts[1].symlink_to("gone")
    with pytest.raises(FileFormatError, match=rf"{parts[1].name}: the link is broken, .*'gone'"):
        open_weights(parts[0])


def test_a_part_of_another_name_is_an_error(parts):
    other = parts[1].with_name("other.gguf")
    parts[1].rename(other)
    with pytest.raises(FileFormatError, match=r"part 2 of 3; expected .*-00002-of-00003\.gguf"):
        open_weights(other)


def test_parts_in_each_others_place_are_an_error(parts):
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(FileFormatError, match=r"m-00003.* key 'split\.no' is 1; expected 2"):
        open_weights(parts[0])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (small_part(1, count=3, name="u"), r"m-00002.*'split\.count' is 3; expected 2"),
        (small_part(1), "m-00002.* tensor 't' is in .*m-00001.* too"),
        (padded(header(tensors=[tensor("u")]), bytes(128)), r"'split\.count' is None; expected 2"),
        (b"GGUF", "m-00002.* the version"),
        (small_part(1, name="u")[:-1], "m-00002.* the data of tensor 'u'"),
    ],
)
def test_a_part_that_contradicts_is_named(tmp_path, second, message):
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(small_part())
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    with pytest.raises(FileFormatError, match=message):
        open_weights(tmp_path / "m-00001-of-00002.gguf")


def test_another_number_of_tensors_is_an_error(tmp_path):
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(small_part(tensors=3))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(small_part(1, tensors=3, name="u"))
    with pytest.raises(FileFormatError, match="is 3, but the 2 parts have 2 tensors"):
        open_weights(tmp_path / "m-00002-of-00002.gguf")


def test_a_number_of_parts_that_is_no_integer_is_an_error(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(header(keys=[key("split.count", 7, b"\1")]))
    with pytest.raises(FileFormatError, match=r"key 'split\.count' is no integer"):
        open_weights(path)
