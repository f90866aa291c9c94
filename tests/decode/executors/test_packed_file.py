"""Packed weights in a file: when they are mapped, when they are written again, and what fails."""

import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tensor_ops
from cached_models import answer
from tensor_ops_decode.weights.safetensors import open_safetensors


@pytest.fixture
def model(folder, tmp_path):
    """A copy of the model, which a test may change."""
    return shutil.copytree(folder, tmp_path / "model")


def test_the_second_kernel_maps_what_the_first_has_written(model, cpp, cache):
    expected, without = answer(model, cpp)
    assert without.packed_file is None
    written, first = answer(model, cpp, cache=cache, num_workers=2)
    mapped, second = answer(model, cpp, cache=str(cache), num_workers=1, max_seq_length=64)
    assert expected == written == mapped
    (file,) = cache.iterdir()
    assert file.name.startswith("model.")
    assert first.packed_file == f"written to {file}"
    assert second.packed_file == f"mapped from {file}"
    assert f"  packed weights: mapped from {file}" in str(second).splitlines()
    assert second.as_dict()["packed_file"] == second.packed_file
    assert second.memory["mapped weights"] > 0
    tensors, metadata = open_safetensors(file)
    assert tensors.keys() == {"packed"}
    assert tensors["packed"].offset % 4096 == 0
    assert metadata.keys() == {"key", "files", "checksums"}


def test_a_kernel_has_its_program_parsed_once(model, cpp, cache):
    """Its executor is asked for memory and a layout, and compiles it, all with one text."""
    native = pytest.importorskip("tensor_ops_cpp._native")
    for max_seq_length in (32, 48):
        before = native.parsed_programs()
        answer(model, cpp, cache=cache, max_seq_length=max_seq_length)
        assert native.parsed_programs() == before + 1


def test_true_is_the_folder_of_the_model(model, cpp):
    before = set(model.iterdir())
    assert "written to" in answer(model, cpp, cache=True)[1].packed_file
    assert "mapped from" in answer(model, cpp, cache=True)[1].packed_file
    assert len(set(model.iterdir()) - before) == 1
    assert answer(model, cpp, cache=False)[1].packed_file is None


def test_progress_is_that_of_packing(model, cpp, cache):
    seen = []
    answer(model, cpp, cache=cache, progress=lambda *sizes: seen.append(sizes))
    assert seen
    seen.clear()
    answer(model, cpp, cache=cache, progress=lambda *sizes: seen.append(sizes))
    assert seen == []


def test_each_way_of_packing_has_its_own_file(model, cpp, cache):
    answers = [answer(model, cpp, cache=cache, quantize=each)[0] for each in (None, "q8_0", "q4_1")]
    assert len(list(cache.iterdir())) == 3
    for expected, each in zip(answers, (None, "q8_0", "q4_1"), strict=True):
        tokens, explanation = answer(model, cpp, cache=cache, quantize=each)
        assert (tokens, explanation.packed_file[:11]) == (expected, "mapped from")


def test_activations_share_a_file(model, cpp, cache):
    expected = answer(model, cpp, quantize="q8_0", activations="float32")[0]
    answer(model, cpp, cache=cache, quantize="q8_0", activations="int8")
    tokens, explanation = answer(model, cpp, cache=cache, quantize="q8_0", activations="float32")
    assert (tokens, explanation.packed_file[:11]) == (expected, "mapped from")


def test_a_table_that_is_quantized_too_is_kept(folder, cpp, tmp_path, cache, monkeypatch):
    from byte_models import save_model

    save_model(tmp_path / "tied", tied=True)
    expected = answer(tmp_path / "tied", cpp, cache=cache, quantize="q4_0")[0]
    (file,) = cache.iterdir()
    assert len(open_safetensors(file)[0]) == 2
    monkeypatch.setattr(
        "tensor_ops_decode.executors.sources.apply_transforms",
        lambda tensor, names: pytest.fail("quantized again") if names else tensor,
    )
    tokens, explanation = answer(tmp_path / "tied", cpp, cache=cache, quantize="q4_0")
    assert (tokens, explanation.packed_file[:11]) == (expected, "mapped from")


def test_other_weights_of_the_same_names_are_packed_again(model, cpp, cache):
    first = answer(model, cpp, cache=cache)[0]
    file = model / "model.safetensors"
    data = bytearray(file.read_bytes())
    half = len(data) // 2
    data[half:] = (np.frombuffer(data[half:], np.uint8) ^ 0x80).tobytes()  # other signs
    file.write_bytes(data)
    expected = answer(model, cpp)[0]
    assert expected != first
    tokens, explanation = answer(model, cpp, cache=cache)
    assert (tokens, explanation.packed_file[:10]) == (expected, "written to")
    assert answer(model, cpp, cache=cache)[1].packed_file.startswith("mapped from")
    assert len(list(cache.iterdir())) == 1


def test_a_copy_with_another_time_is_compared_by_content(model, cpp, cache):
    answer(model, cpp, cache=cache)
    os.utime(model / "model.safetensors", (1, 1))
    assert answer(model, cpp, cache=cache)[1].packed_file.startswith("mapped from")


def test_two_processes_may_write_at_once(model, cpp, cache):
    code = (
        "import sys, tensor_ops_decode\n"
        "tensor_ops_decode.load(sys.argv[1], 'cpp', cache=sys.argv[2], num_workers=1).close()"
    )
    words = [sys.executable, "-c", code, str(model), str(cache)]
    for process in [subprocess.Popen(words) for _ in range(2)]:
        assert process.wait(60) == 0
    assert len(list(cache.iterdir())) == 1
    assert answer(model, cpp, cache=cache)[1].packed_file.startswith("mapped from")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_what_a_killed_process_has_written_is_removed_by_the_next_one(model, cpp, cache):
    code = (
        "import os, signal, sys, tensor_ops_decode\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "tensor_ops_decode.load(sys.argv[1], 'cpp', cache=sys.argv[2], num_workers=1)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(model), str(cache)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = cache.iterdir()
    assert left.suffix == ".tmp"
    assert left.stat().st_size > 0
    _, explanation = answer(model, cpp, cache=cache)
    assert [f"written to {file}" for file in cache.iterdir()] == [explanation.packed_file]


def test_what_another_process_still_writes_stays(model, cpp, cache):
    fcntl = pytest.importorskip("fcntl")
    answer(model, cpp, cache=cache)
    (file,) = cache.iterdir()
    begun, other = (cache / f"{name}.0.tmp" for name in (file.name, "other"))
    empty = cache / f"{file.name}.1.tmp"
    other.write_bytes(b"of another model")
    empty.touch()  # its writer may be about to lock it
    with open(begun, "xb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b"a part")
        writer.flush()
        file.unlink()
        answer(model, cpp, cache=cache)
        assert set(cache.iterdir()) == {file, begun, other, empty}
    file.unlink()
    answer(model, cpp, cache=cache)
    assert set(cache.iterdir()) == {file, other, empty}


def test_where_nothing_can_be_kept_a_warning_says_so(model, cpp, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.warns(RuntimeWarning, match=r"cannot be kept in .*: No space left") as warned:
        tokens, explanation = answer(model, cpp, cache=cache)
    assert Path(warned[0].filename).name == "cached_models.py"  # the caller
    assert tokens == answer(model, cpp)[0]
    assert explanation.packed_file.startswith("cannot be kept in ")
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_folder_that_is_read_only_serves(model, cpp, cache):
    answer(model, cpp, cache=cache)
    cache.chmod(0o555)
    with warnings.catch_warnings(action="error"):
        assert answer(model, cpp, cache=cache)[1].packed_file.startswith("mapped from")


def test_what_makes_no_sense_is_an_error_before_any_work(model, tmp_path):
    with pytest.raises(ValueError, match=r"cache must be a folder, got '.*none', which is none"):
        tensor_ops.PersistentKernel(model=model, cache=tmp_path / "none")
    with pytest.raises(TypeError, match=r"cache must be a folder, or True .* got 7"):
        tensor_ops.PersistentKernel(model=model, cache=7)
    with pytest.raises(ValueError, match="cache needs model="):
        tensor_ops.PersistentKernel(cache=True)
    kernel = tensor_ops.PersistentKernel(model=model, backend="python", cache=tmp_path)
    with pytest.raises(ValueError, match="'python' does not pack weights; leave cache= out"):
        kernel.compile()


def test_a_backend_that_packs_no_weights_is_passed_over(model, cpp, cache):
    with pytest.warns(
        tensor_ops.BackendFallbackWarning, match="'python': it does not pack weights.* on 'cpp'"
    ):
        kernel = tensor_ops.PersistentKernel(
            model=model, backend="python", fallback_backends=[cpp], cache=cache
        )
    assert kernel.explain().backend == cpp
