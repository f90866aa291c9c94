"""Where a folder or a file is in the way of a file, commands say so, and name it."""

import os

import pytest

from tensor_ops import tuning
from tensor_ops.__main__ import main
from tensor_ops.config import tuning_table


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise AssertionError("measured")

    monkeypatch.setattr(tuning, "measure", refuse)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file").touch()


@pytest.fixture
def error(capsys):
    """A function that runs a command that fails, and returns its message."""

    def run(*words):
        assert main(list(words)) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("tensor-ops: error: ")
        assert "ermission" not in err
        assert "Errno" not in err
        assert "File exists" not in err
        return err

    return run


@pytest.fixture
def table():
    path = tuning_table.default_path()
    path.parent.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["tune"], "cannot be written: {} is a folder; name a file in it, or move it away"),
        (["tune", "--show"], "{}: is a folder, no regular file; move it away"),
        (["tune", "--clear"], "{0} cannot be removed: {0} is a folder"),
    ],
)
def test_a_folder_in_the_place_of_the_table(words, says, table, error):
    table.mkdir(parents=True)
    assert says.format(table) in error(*words)


def test_a_file_in_the_place_of_the_folder_of_the_table(table, error, capsys):
    table.parent.touch()
    assert f"{table} cannot be written: {table.parent} is no folder" in error("tune")
    assert main(["tune", "--clear"]) == 0
    assert capsys.readouterr().out == f"There is no table at {table}\n"


@pytest.mark.parametrize("option", ["--json", "--plot"])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("folder.svg", "folder.svg is a folder; name a file in it"),
        ("file/x.svg", "{}/file is no folder"),
        ("none/x.svg", "there is no folder {}/none; make it first"),
    ],
)
def test_a_file_of_bench(option, path, says, error):
    if option == "--plot":
        pytest.importorskip("matplotlib")
    expected = f"{path} cannot be written: {says.format(os.getcwd())}"
    assert expected in error("bench", f"{option}={path}")


def test_two_files_of_bench_that_are_one(capsys):
    pytest.importorskip("matplotlib")
    with pytest.raises(SystemExit):
        main(["bench", "--json=same.svg", "--plot=./same.svg"])
    assert "--json and --plot both name same.svg; give each a file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--show"], ["--backend=python"]])
def test_a_folder_in_the_place_of_the_configuration(words, error, monkeypatch):
    place = f"{os.getcwd()}/folder.svg"
    says = f"{place}: is a folder, no regular file; put a file in its place\n"
    assert error("configure_backend", "--config=folder.svg", *words).endswith(says)
    monkeypatch.setenv("TENSOR_OPS_CONFIG", "folder.svg")
    assert f"{place}: is a folder, no regular file" in error("configure_backend", *words)
    assert f"{place}: is a folder, no regular file" in error("explain", "silu")


def test_a_file_in_the_place_of_the_folder_of_the_configuration(error):
    message = error("configure_backend", "--config=file/backend.json", "--backend=python")
    assert f"{os.getcwd()}/file is no folder; nothing was changed" in message
