"""A model exported into a folder: what is in it, and that it is whole or absent."""

import dataclasses
import json

import numpy as np
import pytest

from tensor_ops_decode import PersistentKernel, Program
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.kernel import export
from tensor_ops_decode.kernel.export import ModelFacts, export_model
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program.records import Limits
from tensor_ops_decode.weights import open_weights
from tensor_ops_decode.weights.safetensors import open_safetensors
from whole_programs import tensors_of
from wrong_programs import text_with


@pytest.fixture
def kernel(folder):
    with PersistentKernel(model=folder, backend="python", quantize="q8_0") as made:
        yield made


def test_the_folder_has_the_program_the_tensors_and_the_facts(kernel, folder, tmp_path):
    kernel.export(tmp_path / "exported")
    names = sorted(path.name for path in tmp_path.glob("exported/*"))
    assert names == ["model.json", "program.json", "weights.safetensors"]
    described = json.loads((tmp_path / "exported/model.json").read_text(encoding="utf-8"))
    tensors, metadata = open_safetensors(tmp_path / "exported/weights.safetensors")
    assert described == {
        "format": "tensor-ops model",
        "version": 1,
        "name": folder.name,
        "weights_sha256": metadata["sha256"],
        "logits": "logits",
        "tokens": "next",
        "vocabulary_size": 260,
        "context_length": 128,
        "num_layers": 2,
        "start_token": 0,
        "end_tokens": [256],
        "activations": None,
    }
    assert tensors.keys() == kernel.program.tensors.keys()


def test_a_layer_is_a_node_with_a_cache(monkeypatch, tmp_path):
    """Whatever its kind."""
    other = dataclasses.replace(KINDS["attention"], name="other attention")
    monkeypatch.setitem(KINDS, other.name, other)
    program = Program.from_json(text_with({"nodes/first/kind": other.name}))
    facts = ModelFacts("model", "logits", "next", 0, frozenset(), None)
    export_model(tmp_path / "exported", program, tensors_of(program), facts)
    described = json.loads((tmp_path / "exported/model.json").read_text(encoding="utf-8"))
    assert described["num_layers"] == len(program.caches) == 2


def test_the_program_is_the_same_but_for_where_its_tensors_are(kernel, tmp_path):
    kernel.export(tmp_path / "exported")
    text = (tmp_path / "exported/program.json").read_text(encoding="utf-8")
    exported, made = Program.from_json(text), kernel.program
    assert (exported.nodes, exported.limits, exported.values) == (
        made.nodes,
        made.limits,
        made.values,
    )
    for name, tensor in exported.tensors.items():
        assert (tensor.type, tensor.shape) == (made.tensors[name].type, made.tensors[name].shape)
        assert tensor.source == {"file": "weights.safetensors", "tensor": name, "transform": []}


def test_tensors_have_the_bytes_that_executors_are_given(kernel, folder, tmp_path):
    kernel.export(tmp_path / "exported")
    stored, metadata = open_safetensors(tmp_path / "exported/weights.safetensors")
    expected = TensorArrays(kernel.program, {}, open_weights(folder))
    types = {tensor.type for tensor in kernel.program.tensors.values()}
    assert {"q8_0", "f32"} <= types
    for name, tensor in stored.items():
        found = tensor.file.view(tensor.offset, tensor.size, name)
        given = np.ascontiguousarray(expected[name]).reshape(-1).view(np.uint8)
        np.testing.assert_array_equal(found, given)
        element = 1 if kernel.program.tensors[name].type == "q8_0" else 4
        assert tensor.offset % element == 0
    assert metadata["format"] == "tensor-ops model 1"


def test_progress_counts_to_the_end(kernel, tmp_path):
    seen = []
    kernel.export(tmp_path / "exported", progress=lambda done, size: seen.append((done, size)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0


@pytest.mark.parametrize("start", [-1, True, 10**12, None], ids=repr)
def test_a_start_token_that_is_none_becomes_the_first_token(tmp_path, start):
    from byte_models import save_model

    save_model(tmp_path / "model")
    config = tmp_path / "model/config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(settings | {"bos_token_id": start}), encoding="utf-8")
    with PersistentKernel(backend="python", model=tmp_path / "model", max_seq_length=16) as kernel:
        kernel.export(tmp_path / "exported")
    described = json.loads((tmp_path / "exported/model.json").read_text(encoding="utf-8"))
    assert described["start_token"] == 0


def test_a_full_disk_is_said_of_the_folder_that_was_given(kernel, tmp_path):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*exported'"):
        kernel.export(tmp_path / "exported", progress=fail)
    with pytest.raises(ValueError, match="the path of the folder is empty"):
        kernel.export("")


def test_what_is_there_already_is_not_touched(kernel, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported/mine").write_text("mine")
    with pytest.raises(FileExistsError, match="exists already; give the name of a new folder"):
        kernel.export(tmp_path / "exported")
    assert [path.name for path in tmp_path.rglob("*")] == ["exported", "mine"]


def test_a_folder_in_no_folder_is_an_error(kernel, tmp_path):
    with pytest.raises(FileNotFoundError, match="missing: is no folder; create it first"):
        kernel.export(tmp_path / "missing/exported")


@pytest.mark.parametrize("moment", ["in the tensors", "before the rename"])
def test_what_fails_leaves_nothing(kernel, tmp_path, monkeypatch, moment):
    def fail(*arguments):
        raise OSError("the disk is full")

    progress = {"progress": fail} if moment == "in the tensors" else {}
    if not progress:
        monkeypatch.setattr(export.os, "rename", fail)
    with pytest.raises(OSError, match="the disk is full"):
        kernel.export(tmp_path / "exported", **progress)
    assert list(tmp_path.iterdir()) == []


def test_layers_by_hand_are_not_exported(tmp_path):
    kernel = PersistentKernel(backend="python")
    with pytest.raises(ValueError, match="make the kernel with model="):
        kernel.export(tmp_path / "exported")
    kernel.close()


def test_a_closed_kernel_is_not_exported(kernel, tmp_path):
    kernel.close()
    with pytest.raises(ValueError, match="closed"):
        kernel.export(tmp_path / "exported")


def test_the_command_makes_the_folder(run, folder, tmp_path):
    options = "--backend=python --max-seq-length=64 --max-num-batched-requests=2 --quantize=q4_0"
    options += " --max-num-batched-tokens=32 --cache-dtype=int8 --activations=float32"
    done = run("export", folder, tmp_path / "exported", *options.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (tmp_path / "exported/program.json").read_text(encoding="utf-8")
    program = Program.from_json(text)
    assert program.limits == Limits(2, 32, 2, 64, 16, 8)
    assert {cache.dtype for cache in program.caches.values()} == {"int8"}
    assert {"q4_0", "q8_0"} <= {tensor.type for tensor in program.tensors.values()}
    described = json.loads((tmp_path / "exported/model.json").read_text(encoding="utf-8"))
    assert (described["activations"], described["end_tokens"]) == ("float32", [256])


def test_the_command_fails_with_one_line_and_status_1(run, folder, tmp_path):
    for output, message in ((tmp_path, "exists already"), (tmp_path / "a/b", "is no folder")):
        done = run("export", folder, output, "--backend=python")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert message in done.stderr
    assert list(tmp_path.iterdir()) == []
