"""Packed weights that were kept, and then changed: a warning, and never another answer."""

import json
import os
import shutil
import sys
import warnings

import pytest

import tensor_ops
from byte_models import save_model
from cached_models import answer
from tensor_ops_decode.weights.safetensors import header_of, open_safetensors


@pytest.fixture
def model(tmp_path):
    """A model whose table of embeddings is quantized too, so that its file has two tensors."""
    save_model(tmp_path / "model", tied=True)
    return tmp_path / "model"


@pytest.fixture
def kept(model, cpp, cache):
    """A function that answers with the cache, the file in it, and what the answer must be."""

    def again():
        return answer(model, cpp, cache=cache, quantize="q4_0")

    expected = again()[0]
    (file,) = cache.iterdir()
    return again, file, expected


def spoiled(file, offset):
    """Flip one bit."""
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x40
    file.write_bytes(data)


def assert_written_again(again, file, expected, message):
    with pytest.warns(RuntimeWarning, match=message) as warned:
        tokens, explanation = again()
    assert len(warned) == 1
    assert str(file) in str(warned[0].message)
    assert "the model is packed again" in str(warned[0].message)
    assert (tokens, explanation.packed_file[:10]) == (expected, "written to")
    tokens, explanation = again()
    assert (tokens, explanation.packed_file[:11]) == (expected, "mapped from")


@pytest.mark.parametrize("tensor", [0, 1])
@pytest.mark.parametrize("place", [0.0, 0.3, 1.0])
def test_no_byte_of_a_tensor_may_change(kept, tensor, place):
    again, file, expected = kept
    name, found = list(open_safetensors(file)[0].items())[tensor]
    spoiled(file, found.offset + int((found.size - 1) * place))
    message = f"is damaged: tensor '{name}' was changed after it was written"
    assert_written_again(again, file, expected, message)


def test_tensors_may_not_change_places(kept):
    again, file, expected = kept
    tensors, metadata = open_safetensors(file)
    data = {name: file.read_bytes()[t.offset : t.offset + t.size] for name, t in tensors.items()}
    sizes = {name: ("U8", [len(each)], len(each)) for name, each in reversed(data.items())}
    swapped = dict(zip(sizes, data.values(), strict=True))
    file.write_bytes(
        header_of(metadata, {n: ("U8", [len(b)], len(b)) for n, b in swapped.items()})
        + b"".join(swapped.values())
    )
    assert_written_again(again, file, expected, "was changed after it was written")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "the file is empty"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "a pointer of git LFS"),
        (lambda data: data[:4], "the length of the header"),
        (lambda data: data[:-1], "expected at most"),
        (lambda data: data + b"\0", "bytes behind the last tensor"),
        (lambda data: data[:8] + b"\xff" + data[9:], "UTF-8"),
        (lambda data: data[:8] + b"x" + data[9:], "the JSON cannot be read"),
        (lambda data: data.replace(b'"key": "', b'"key": "0', 1), "not of this program"),
        (lambda data: data.replace(b'"packed"', b'"picked"', 1), "the tensors are picked, "),
        (lambda data: data.replace(b"[{", b"[7", 1), "the metadata have no JSON as 'files'"),
        (lambda data: data.replace(rb"{\"packed\"", rb"7\"packed\"", 1), "no JSON as 'checksums'"),
        (lambda data: data.replace(rb"{\"packed\"", rb"{\"picked\"", 1), "tensor 'packed' was"),
    ],
)
def test_a_damaged_file_is_written_again(kept, damage, message):
    again, file, expected = kept
    data = file.read_bytes()
    file.write_bytes(damage(data))
    assert_written_again(again, file, expected, message)
    assert file.read_bytes() == data


def test_a_file_without_checksums_is_of_an_older_layout(kept):
    again, file, expected = kept
    tensors, metadata = open_safetensors(file)
    data = file.read_bytes()
    begin = min(each.offset for each in tensors.values())
    older = {key: each for key, each in metadata.items() if key != "checksums"}
    sizes = {name: ("U8", [each.size], each.size) for name, each in tensors.items()}
    file.write_bytes(header_of(older, sizes) + data[begin:])
    tokens, explanation = again()
    assert (tokens, explanation.packed_file[:10]) == (expected, "written to")
    assert file.read_bytes() == data


@pytest.fixture
def other(cpp, tmp_path):
    """The packed file of another model, of the same size."""
    save_model(tmp_path / "other", tied=True, seed=1)
    (tmp_path / "others").mkdir()
    answer(tmp_path / "other", cpp, cache=tmp_path / "others", quantize="q4_0")
    (file,) = (tmp_path / "others").iterdir()
    return file


def test_a_file_of_another_model_is_written_again(kept, other):
    again, file, expected = kept
    assert other.stat().st_size == file.stat().st_size
    shutil.copy(other, file)
    tokens, explanation = again()
    assert (tokens, explanation.packed_file[:10]) == (expected, "written to")


def test_checksums_of_one_model_do_not_make_weights_of_another(kept, other):
    """The data of a file are replaced, and its header says what it said."""
    again, file, expected = kept
    begin = min(each.offset for each in open_safetensors(file)[0].values())
    file.write_bytes(file.read_bytes()[:begin] + other.read_bytes()[begin:])
    assert_written_again(again, file, expected, "tensor 'packed' was changed")


posix = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")


@posix
def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(kept):
    again, file, expected = kept
    file.unlink()
    os.mkfifo(file)
    assert_written_again(again, file, expected, "is a pipe, no regular file")


@posix
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_is_refused(kept, mode):
    again, file, _ = kept
    file.chmod(mode)
    with pytest.raises(tensor_ops.ConfigError) as raised:
        again()
    assert f"{file}: others can write it (its mode is {mode:o}); take that" in str(raised.value)
    file.chmod(0o644)
    assert again()[1].packed_file.startswith("mapped from")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_a_file_of_another_user_is_refused(kept):
    again, file, _ = kept
    os.chown(file, 65534, -1)
    with pytest.raises(tensor_ops.ConfigError, match=r"belongs to user 65534.* give cache="):
        again()


@posix
@pytest.mark.parametrize(("umask", "mode"), [(0, 0o644), (0o002, 0o644), (0o077, 0o600)])
def test_what_is_written_can_be_mapped_whatever_the_umask_is(model, cpp, cache, umask, mode):
    before = os.umask(umask)
    try:
        answer(model, cpp, cache=cache)
    finally:
        os.umask(before)
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == mode
    with warnings.catch_warnings(action="error"):
        assert answer(model, cpp, cache=cache)[1].packed_file.startswith("mapped from")


def test_checksums_are_of_what_the_file_has(kept, cpp):
    _, file, _ = kept
    module = pytest.importorskip("tensor_ops_cpp")
    tensors, metadata = open_safetensors(file)
    found = {
        n: module.packed_checksum(t.file.view(t.offset, t.size, n)) for n, t in tensors.items()
    }
    assert json.loads(metadata["checksums"]) == found
