"""Exported models in C++: wrong calls and damaged folders are errors that say what is wrong."""

import json
import random
import shutil

import pytest

from exported_models import words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("append 0 1 260", "append: tokens must be from 0 to 259, got 260"),
        ("append 0 -1", "append: tokens must be from 0 to 259, got -1"),
        (words("append 0", *[1] * 121), "append: 121 tokens after 0 are more than the 120"),
        ("generate 5 0", "generate: sequence 1 is empty; append tokens first"),
        ("generate 0 0", "generate: max_tokens must be from 1"),
        ("generate 5", "generate: the number of sequences must be from 1"),
        ("logits 0", "logits: the sequence is empty; append tokens first"),
        ("truncate 0 1", "truncate: length must be from 0 to 0"),
        ("sampling 0 -1 0 1 0 0", "temperature must be 0 or larger"),
        ("steps 1 0 next", "num_steps at least 1, got 1 and 0"),
        ("steps 33 1 next", "num_tokens must be from 1 to 32"),
        ("null_array", "step_array: name must be a string, got a null pointer"),
        ("null_output", "run_steps: output must be a string, got a null pointer"),
    ],
)
def test_wrong_calls_are_errors_and_change_nothing(exported, cpp, driver, line, message):
    lines = [words("open", exported, 1), "sequence"]
    *_, found, done, tokens = driver(*lines, line, "append 0 1 2", "generate 5 0")
    assert found.startswith("ValueError: ")
    assert message in found
    assert done == ""
    assert tokens == driver(*lines, "append 0 1 2", "generate 5 0")[-1]


def changed_json(name, **changes):
    def change(folder):
        path = folder / name
        data = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**data, **changes}), encoding="utf-8")

    return change


def changed_header(change):
    """Change the header of the weights, which keeps its length."""

    def change_file(folder):
        path = folder / "weights.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode().ljust(length)
        assert len(text) == length
        path.write_bytes(data[:8] + text + data[8 + length :])

    return change_file


def changed_bytes(change, name="weights.safetensors"):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def with_tensor(**changes):
    return changed_header(lambda header: header["model.norm.weight"].update(changes))


DAMAGES = [
    (shutil.rmtree, "model.json: cannot be opened"),
    (lambda folder: (folder / "model.json").unlink(), "model.json: cannot be opened"),
    (lambda folder: (folder / "program.json").unlink(), "program.json: cannot be opened"),
    (lambda folder: (folder / "weights.safetensors").unlink(), "weights.safetensors: cannot be"),
    (changed_bytes(lambda data: b"", "model.json"), "model.json: the file is empty"),
    (changed_bytes(lambda data: data[:-3], "model.json"), "model.json: the model: JSON: "),
    (changed_bytes(lambda data: b"[1]", "model.json"), "format is 'tensor-ops model'"),
    (changed_json("model.json", format="other"), "format is 'tensor-ops model'"),
    (changed_json("model.json", version=2, more=1), "version must be 1, got 2; export the model"),
    (changed_json("model.json", more=1), "unknown key 'more'"),
    (changed_json("model.json", end_tokens=[-1]), "end_tokens must be an integer from 0"),
    (changed_json("model.json", activations="int4"), "activations must be one of float32"),
    (changed_json("model.json", tokens="logits"), "'logits' is no output of the program with one"),
    (changed_json("model.json", logits="next"), "'next' is no output of the program with float32"),
    (
        changed_json("model.json", vocabulary_size=7),
        "vocabulary_size is 7, but that of its program",
    ),
    (changed_json("model.json", context_length=7), "context_length is 7, but that of its program"),
    (changed_json("model.json", num_layers=7), "num_layers is 7, but that of its program is 2"),
    (changed_json("model.json", weights_sha256="0"), "they are of different exports"),
    (changed_json("program.json", version=3), "program.json: program: version must be 2, got 3"),
    (changed_json("program.json", nodes=[]), "is written by no node"),
    (changed_bytes(lambda data: data[:-1]), "of which the file has"),
    (changed_bytes(lambda data: data + b"\0"), "bytes of data"),
    (changed_bytes(lambda data: data[:7]), "shorter than 8 bytes"),
    (changed_bytes(lambda data: b"\xff" * 8 + data[8:]), "the header must have at most"),
    (changed_bytes(lambda data: data[:8] + b"[" + data[9:]), "the header: JSON: "),
    (with_tensor(dtype="F16"), "data_offsets must be 128 bytes apart"),
    (with_tensor(dtype="I32"), "dtype must be F32, F16, BF16 or U8, got 'I32'"),
    (with_tensor(shape=[8, 8]), "must be F32 of shape (64,), for f32 in the program, got F32 of"),
    (with_tensor(shape=[-64]), "shape must be an integer from 1"),
    (with_tensor(shape=[2**31 - 1] * 3), "its size in bytes is more than any memory"),
    (with_tensor(data_offsets=[0, 256]), "where the one before ends"),
    (with_tensor(data_offsets=[256, 0]), "data_offsets must be 256 bytes apart"),
    (with_tensor(data_offsets=[-256, 0]), "data_offsets must be an integer, 0 or larger"),
    (with_tensor(data_offsets=[0]), "data_offsets must have two offsets"),
    (with_tensor(more=1), "unknown key 'more'"),
    (changed_header(lambda header: header.pop("__metadata__")), "they are of different exports"),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_a_damaged_export_is_an_error_that_names_the_file(exported, cpp, driver, tmp_path, number):
    damage, message = DAMAGES[number]
    shutil.copytree(exported, tmp_path / "model")
    damage(tmp_path / "model")
    (found,) = driver(words("open", tmp_path / "model", 1))
    assert found.startswith(f"ValueError: {tmp_path}/model/")
    assert message in found


def test_bytes_that_change_at_random_are_errors_or_do_no_harm(exported, cpp, driver, tmp_path):
    draw, lines = random.Random("changed bytes"), []
    for number in range(60):
        folder = shutil.copytree(exported, tmp_path / str(number))
        path = folder / draw.choice(["model.json", "program.json", "weights.safetensors"])
        data = bytearray(path.read_bytes())
        # The header of the weights alone: any other bytes are weights.
        end = 8 + int.from_bytes(data[:8], "little") if path.suffix != ".json" else len(data)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(end)] = draw.randrange(256)
        path.write_bytes(data)
        lines += [words("open", folder, 1), "sequence", "append 0 1 2 3", "generate 3 0"]
    found = driver(*lines)
    opened = found[::4]
    assert {each.partition(":")[0] for each in opened} == {"", "ValueError"}
    assert opened.count("") > 0
