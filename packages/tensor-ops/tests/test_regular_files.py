"""Files that others made: what stands in their place is named, and never waited for."""

import os

import pytest

from tensor_ops.extension import WrongFileError, open_regular

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"


@pytest.mark.parametrize(
    "data", [b"x", b"\0" * 9000, b"version 1", b"<htm", b"a <html>", b'"<!doctype html>"']
)
def test_a_file_is_read_from_its_beginning(tmp_path, data):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(data)
    link.symlink_to(path)
    for each in (path, str(path), link):
        with open_regular(each) as file:
            assert file.read() == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (POINTER, "a pointer of git LFS to the file, and not the file itself; run 'git lfs pull'"),
        (b"<!doctype html>", "an HTML page"),
        (b"<!DOCTYPE HTML PUBLIC", "an HTML page"),
        (b"\n\t <Html lang=en>", "an HTML page"),
        (b"\xef\xbb\xbf\r\n<html>", "an HTML page"),
    ],
)
def test_what_stands_in_the_place_of_a_file_is_named(tmp_path, data, message):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(WrongFileError, match=message) as raised:
        open_regular(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_what_cannot_be_opened_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        open_regular(tmp_path / "folder")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_and_a_device_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), ("/dev/zero", "a device or a socket")):
        with pytest.raises(WrongFileError, match=f"{path}: is {kind}, no regular file"):
            open_regular(path)
