"""Files of a model that are something else: named for what they are, and never waited for."""

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import tensor_ops_decode
from byte_models import TEMPLATE, save_model
from tensor_ops_decode import FileFormatError, open_weights
from tensor_ops_decode.weights.model_file import MOST_BYTES
from tensor_ops_decode.weights.safetensors import header_of, open_safetensors

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
PAGE = b'<!DOCTYPE html>\n<html lang="en"><head><title>Log in</title></head></html>\n'
STAND_INS = {
    "pointer": (POINTER, "a pointer of git LFS.*git lfs pull"),
    "page": (PAGE, "an HTML page"),
    "small page": (b"\xef\xbb\xbf \r\n<HTML><body>Sign in</body></HTML>", "an HTML page"),
    "nothing": (b"", "the file is empty"),
}
# All that is read as a whole, and files of tensors, of which only a header is.
TEXTS = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "model.safetensors.index.json",
]
TENSORS = ["model.safetensors", "shard.safetensors"]
TEMPLATES = ["additional_chat_templates", "additional_chat_templates/rag.jinja"]
BROKEN = "the link is broken, it leads to 'gone'; download the model again"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder that has each file that is read of one."""
    folder = tmp_path_factory.mktemp("whole")
    save_model(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<end>"}', encoding="utf-8")
    use_everything(folder)
    return folder


@pytest.fixture
def replace(whole, tmp_path):
    """A function that makes a file of that folder anew, with all others as they are."""

    def replace(name, make):
        others = {path.name: path for path in whole.iterdir()}
        if name in ("shard.safetensors", "model.safetensors.index.json"):
            single = others.pop("model.safetensors")
            others["shard.safetensors"] = single
            places = dict.fromkeys(open_safetensors(single)[0], "shard.safetensors")
            index = tmp_path / "model.safetensors.index.json"
            index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
        for other, path in others.items():
            (tmp_path / other).symlink_to(path)
        use_everything(tmp_path)
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        make(tmp_path / name)
        return tmp_path

    return replace


def use_everything(folder):
    """Open a model, and use each of its files."""
    with tensor_ops_decode.load(folder, "python") as model:
        model.chat_prompt([{"role": "user", "content": "hi"}])
        assert model.defaults == {}


def assert_refused(folder, name, message):
    with pytest.raises(FileFormatError, match=message) as raised:
        use_everything(folder)
    assert str(raised.value).startswith(f"{folder / name}: ")


@pytest.mark.parametrize(("data", "message"), STAND_INS.values(), ids=STAND_INS)
@pytest.mark.parametrize("name", TEXTS + TENSORS)
def test_what_stands_in_the_place_of_a_file_is_named(replace, name, data, message):
    folder = replace(name, lambda path: path.write_bytes(data))
    assert_refused(folder, name, message)


@pytest.mark.parametrize(("data", "message"), STAND_INS.values(), ids=STAND_INS)
def test_what_stands_in_the_place_of_a_gguf_file_is_named(tmp_path, data, message):
    (tmp_path / "model.gguf").write_bytes(data)
    with pytest.raises(FileFormatError, match=rf"model\.gguf: .*{message}"):
        open_weights(tmp_path / "model.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", TEXTS + TENSORS)
def test_a_pipe_is_not_waited_for(replace, name):
    assert_refused(replace(name, os.mkfifo), name, "is a pipe, no regular file")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a device without an end")
@pytest.mark.parametrize("name", TEXTS + TENSORS)
def test_a_device_is_not_read(replace, name):
    folder = replace(name, lambda path: path.symlink_to("/dev/zero"))
    assert_refused(folder, name, "is a device or a socket, no regular file")


@pytest.mark.parametrize("name", TEXTS + TENSORS)
def test_a_folder_is_an_error_that_names_it(replace, name):
    folder = replace(name, lambda path: path.mkdir())
    with pytest.raises(OSError, match=name):
        use_everything(folder)


@pytest.mark.parametrize("name", [*TEXTS, *TENSORS, "added_tokens.json", *TEMPLATES])
def test_a_link_that_leads_nowhere_is_named(replace, name):
    folder = replace(name, lambda path: path.symlink_to("gone"))
    assert_refused(folder, name, BROKEN)


def test_a_link_to_no_model_is_named(tmp_path):
    (tmp_path / "model").symlink_to("gone")
    with pytest.raises(FileFormatError, match=rf"model: {BROKEN}"):
        open_weights(tmp_path / "model")
    with pytest.raises(FileNotFoundError):
        open_weights(tmp_path / "gone")


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_read_as_a_whole_has_a_bound(replace, name):
    def make(path):
        path.write_bytes(b"{")
        os.truncate(path, MOST_BYTES + 1)

    assert_refused(replace(name, make), name, f"has {MOST_BYTES + 1} bytes; expected at most")


MANY = 1_100_000  # lists, beside as many commas


def header_of_lists(path):
    text = b'{"x": [' + b",".join([b"[]"] * MANY) + b"]}"
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def text_of_lists(path):
    path.write_text(json.dumps({"x": [[]] * MANY}, separators=(",", ":")), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "make"),
    [("model.safetensors", header_of_lists), ("tokenizer_config.json", text_of_lists)],
)
def test_json_takes_no_multiple_of_its_text(replace, name, make):
    folder = replace(name, make)
    tracemalloc.start()
    try:
        assert_refused(folder, name, "the JSON has about [0-9]+ values; expected at most")
        assert tracemalloc.get_traced_memory()[1] < 30e6  # as lists they take 70 MB
    finally:
        tracemalloc.stop()


def a_key_twice(folder):
    """Write an object of 40,000 keys of which only the last is there twice."""
    keys = [f'"k{number}": 1' for number in range(40_000)]
    text = "{" + ", ".join([*keys, '"k39999": 2']) + "}"
    (folder / "config.json").write_text(text, encoding="utf-8")
    return "key 'k39999' is there twice"


def one_shard(folder):
    """Write 3000 tensors into one shard, the last of which is missing there."""
    sizes = {f"t{number}": ("F32", (1,), 4) for number in range(3000)}
    data = header_of({}, sizes) + np.zeros(3000, np.float32).tobytes()
    (folder / "shard.safetensors").write_bytes(data)
    index = {"weight_map": dict.fromkeys([*sizes, "t3000"], "shard.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return "tensor 't3000' is not in shard.safetensors"


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
from tensor_ops_decode import open_weights
open_weights(sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
@pytest.mark.parametrize("write", [a_key_twice, one_shard])
def test_the_time_to_open_files_grows_with_their_size_and_no_faster(tmp_path, write):
    """Each takes a fraction of a second; what looks at all for each takes half a minute."""
    message = write(tmp_path)
    words = [sys.executable, "-c", LIMITED, tmp_path]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1, done
    assert message in done.stderr
