"""Ranks that are processes: they say what one process says, and the command prints once."""

import json

import pytest

import tensor_ops_decode
from rank_program import LIMITS, texts
from tensor_ops.extension import machine

PROGRAM = __file__.replace("test_processes", "rank_program")
SECONDS = 120
WORLD_SIZES = [2, *(pytest.param(size, marks=pytest.mark.nightly) for size in (3, 4))]


def finished(started):
    """Return what a program has printed, which must have ended well."""
    out, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 0, err
    return out, err


def check_texts(launcher, shared_model, world_size, *how):
    """Check that all ranks say what one says."""
    finished(launcher.start(world_size, PROGRAM, shared_model, *how))
    with tensor_ops_decode.load(shared_model / "model", **LIMITS) as model:
        expected = {"size": world_size, "texts": texts(model)}
    for rank in range(world_size):
        assert json.loads((shared_model / f"found.{rank}").read_text()) == expected


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_all_ranks_say_what_one_says(launcher, shared_model, world_size):
    if launcher.name == "torchrun" and world_size > 2:
        pytest.skip("it takes long to start")
    check_texts(launcher, shared_model, world_size)


@pytest.mark.nightly
def test_ranks_without_shared_memory_say_the_same(launcher, shared_model):
    check_texts(launcher, shared_model, 2, "apart")


@pytest.mark.nightly
def test_ranks_divide_the_processors(launcher, tmp_path):
    if launcher.name == "torchrun":
        pytest.skip("it takes long to start")
    code = (
        "import sys, tensor_ops; k = tensor_ops.PersistentKernel(max_seq_length=64); k.compile();"
        " open(f'{sys.argv[1]}/{k.mpi_rank}', 'w').write(str(k.explain().num_workers))"
    )
    (tmp_path / "program.py").write_text(code)
    finished(launcher.start(2, tmp_path / "program.py", tmp_path))
    found = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert 1 <= sum(found) <= max(2, machine.usable_cpus())


@pytest.mark.nightly
def test_the_command_prints_once(launcher, folder):
    words = ["-m", "tensor_ops", "generate", folder, "The first", "--max-new-tokens", "9"]
    words += ["--json", "--num-workers", "1", "--max-seq-length", "128"]
    out, _ = finished(launcher.start(2, *words))
    (line,) = out.splitlines()
    with tensor_ops_decode.load(folder, **LIMITS) as model:
        (expected,) = model.generate("The first", max_new_tokens=9)
    assert json.loads(line)["tokens"] == list(expected.tokens)


@pytest.mark.nightly
def test_the_first_rank_reads_the_prompt(launcher, folder):
    if launcher.name == "torchrun":
        pytest.skip("it takes long to start")
    words = ["-m", "tensor_ops", "generate", folder, "-", "--max-new-tokens", "9", "--json"]
    started = launcher.start(2, *words, text="The first\n")
    if launcher.name == "openmpi":
        _, err = started.communicate(timeout=SECONDS)
        assert started.returncode != 0
        assert "Open MPI does not pass on where standard input ends; give the prompt" in err
        return
    out, _ = finished(started)
    assert json.loads(out)["prompt_tokens"] == len("The first")


@pytest.mark.nightly
def test_a_conversation_is_read_by_the_first_rank(launcher, folder):
    words = ["-m", "tensor_ops", "generate", folder, "--chat", "--max-new-tokens", "5", "--json"]
    out, _ = finished(launcher.start(2, *words, text="one\n\n/clear\ntwo\n/exit\nthree\n"))
    assert len([json.loads(line) for line in out.splitlines()]) == 2


@pytest.mark.nightly
def test_a_wrong_argument_is_told_once(launcher, folder):
    if launcher.name == "torchrun":
        pytest.skip("it takes long to start")
    started = launcher.start(2, "-m", "tensor_ops", "generate", folder, "hello", "--top-p", "7")
    _, err = started.communicate(timeout=SECONDS)
    assert started.returncode != 0
    assert err.count("top_p must be a number larger than 0, up to 1, got 7.0; all ranks end") == 1


@pytest.mark.nightly
def test_commands_of_one_process_refuse_ranks(launcher, folder, tmp_path):
    if launcher.name == "torchrun":
        pytest.skip("it takes long to start")
    words = ["-m", "tensor_ops", "export", folder, tmp_path / "exported"]
    started = launcher.start(2, *words)
    _, err = started.communicate(timeout=SECONDS)
    assert started.returncode != 0
    assert "tensor-ops export runs in one process, but" in err
    assert not (tmp_path / "exported").exists()
