"""``tensor-ops configure_backend``: every line of the configuration guide, and every refusal."""

import json
import os
import subprocess
import sys

import pytest
from shown_configuration import shown

import tensor_ops
from tensor_ops import config
from tensor_ops.__main__ import main
from tensor_ops.config.location import ENV_CONFIG

VARIABLES = (ENV_CONFIG, config.ENV_FORCE, config.ENV_PREFERRED, config.ENV_PRIORITY)


@pytest.fixture
def path(config_file):
    """The file in use; neither it nor its folder is there yet."""
    config_file.parent.rmdir()
    return config_file


def configure(*arguments):
    return main(["configure_backend", *arguments])


def refused(*arguments):
    with pytest.raises(SystemExit) as caught:
        configure(*arguments)
    return caught.value.code


def content(path):
    return json.loads(path.read_text())


def process(path, *command):
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environ[ENV_CONFIG] = str(path)
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
        check=False,
    )


# The guide's commands

GUIDE = [
    ("--backend=cpp", {"preferred_backend": "cpp"}),
    ("--backend=cuda", {"preferred_backend": "cuda"}),
    ("--backend=opencl", {"preferred_backend": "opencl"}),
    ("--backend=python", {"preferred_backend": "python"}),
    ("--backend=auto", {"preferred_backend": "auto"}),
    ("--backend=cuda --force", {"preferred_backend": "cuda", "force_backend": "cuda"}),
    ("--backend=opencl --force", {"preferred_backend": "opencl", "force_backend": "opencl"}),
    ("--priority=cpp,cuda,opencl,python", {"backend_priority": "cpp cuda opencl python"}),
    ("--priority=opencl,cuda,cpp,python", {"backend_priority": "opencl cuda cpp python"}),
    (
        "--backend=auto --priority=cpp,opencl,cuda,python",
        {"preferred_backend": "auto", "backend_priority": "cpp opencl cuda python"},
    ),
]


@pytest.mark.parametrize(("arguments", "changes"), GUIDE)
def test_command_of_the_guide_saves_what_it_says(arguments, changes, path, capsys):
    # An order that nobody wrote is not in the file: it stays the built-in one.
    expected = {"preferred_backend": "auto", "force_backend": None} | changes
    if "backend_priority" in changes:
        expected["backend_priority"] = changes["backend_priority"].split()
    assert configure(*arguments.split()) == 0
    assert content(path) == expected
    out, _ = capsys.readouterr()
    assert str(path) in out
    # once more changes nothing
    before = path.read_bytes()
    assert configure(*arguments.split()) == 0
    assert path.read_bytes() == before


def test_show_prints_what_the_guide_prints(path, capsys):
    assert configure("--backend=auto") == 0
    capsys.readouterr()
    assert configure("--show") == 0
    assert capsys.readouterr() == (shown(path), "")


@pytest.mark.parametrize("option", ["--show", "-s"])
def test_show_of_every_setting(option, path, capsys):
    order = ["cpp", "cuda", "opencl", "python"]
    assert configure("-b", "python", "-f", "-p", ",".join(order)) == 0
    capsys.readouterr()
    assert configure(option) == 0
    assert capsys.readouterr() == (shown(path, "python", "python", order), "")


def test_guide_s_commands_one_after_another(path):
    """Force is taken back by --backend; the priority stays until it is given again."""
    assert configure("--priority=cpp,python") == 0
    assert configure("--backend=cuda", "--force") == 0
    assert configure("--backend=cpp") == 0
    assert content(path) == {
        "preferred_backend": "cpp",
        "backend_priority": ["cpp", "python"],
        "force_backend": None,
    }
    assert configure("--backend=cuda", "--force") == 0
    assert configure("--priority=python,cpp") == 0
    assert content(path)["force_backend"] == "cuda"
    assert configure("--backend=auto") == 0
    assert content(path)["force_backend"] is None


def test_show_with_changes_applies_them_first(path, capsys):
    assert configure("--show", "--backend=python", "--priority=python, cpp") == 0
    out, err = capsys.readouterr()
    assert out.endswith("\n" + shown(path, "python", priority=["python", "cpp"]))
    assert err == ""


def test_aliases_are_kept_as_they_were_written(path, capsys):
    assert configure("--show", "--backend=numpy", "--force") == 0
    assert content(path)["force_backend"] == "numpy"
    assert "  Force backend: numpy\n" in capsys.readouterr().out


def test_other_keys_of_the_file_are_kept(path):
    path.parent.mkdir(parents=True)
    path.write_text('{"description": "GPU box", "backend_priority": ["cpp"]}')
    assert configure("--backend=python") == 0
    assert content(path) == {
        "description": "GPU box",
        "backend_priority": ["cpp"],
        "preferred_backend": "python",
        "force_backend": None,
    }


# The lines of --show beside it


def test_show_says_that_there_is_no_file_yet(path, capsys):
    assert configure("--show") == 0
    out, _ = capsys.readouterr()
    assert out == shown(path, notes="The file does not exist yet; these are the defaults.\n")
    assert not path.parent.exists()


def test_show_says_which_variables_go_before_the_file(path, capsys, monkeypatch):
    assert configure("--backend=python") == 0
    capsys.readouterr()
    monkeypatch.setenv(config.ENV_FORCE, "cpp")
    monkeypatch.setenv(config.ENV_PRIORITY, "numpy,cpp")
    assert configure("--show") == 0
    out, _ = capsys.readouterr()
    notes = (
        "Environment variables go before the file: "
        "TENSOR_OPS_FORCE_BACKEND=cpp, TENSOR_OPS_BACKEND_PRIORITY=numpy,cpp\n"
    )
    assert out == shown(path, "python", notes=notes)
    assert configure("--backend=python") == 0
    assert "TENSOR_OPS_FORCE_BACKEND=cpp" in capsys.readouterr().err


def test_show_leaves_out_variables_that_say_nothing(path, capsys, monkeypatch):
    monkeypatch.setenv(config.ENV_PREFERRED, " ")
    assert configure("--show") == 0
    assert "Environment" not in capsys.readouterr().out


def test_file_that_the_variable_names(path, tmp_path, capsys, monkeypatch):
    named = tmp_path / "deep" / "er" / "named.json"
    monkeypatch.setenv(ENV_CONFIG, str(named))
    assert configure("--backend=python", "--show") == 0
    assert capsys.readouterr().out.endswith(shown(named, "python"))
    assert not path.exists()


def test_config_option_goes_to_another_file_and_says_so(path, tmp_path, capsys):
    other = tmp_path / "other.json"
    assert configure("--config", str(other), "--backend=python") == 0
    assert content(other)["preferred_backend"] == "python"
    assert not path.exists()
    assert f"{other} is not the file in use" in capsys.readouterr().err
    assert configure("--config", str(other), "--show") == 0
    out, _ = capsys.readouterr()
    notes = f"It is not the file in use; it is once {ENV_CONFIG} names it.\n"
    assert out == shown(other, "python", notes=notes)


def test_relative_config_option_is_shown_in_full(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert configure("--config=here.json", "--show") == 0
    assert f"Configuration file: {tmp_path / 'here.json'}\n" in capsys.readouterr().out


# Backends that are not there


def test_unavailable_backend_is_saved_with_a_note_on_the_fallback(path, capsys):
    assert configure("--backend=tpu", "--priority=mps,python") == 0
    assert content(path)["preferred_backend"] == "tpu"
    err = capsys.readouterr().err
    reason = tensor_ops.get_backend_info("tpu")["reason"]
    assert err.startswith(f"tensor-ops: note: backend 'tpu' is unavailable here: {reason}")
    assert "'python' runs instead, with a warning" in err
    assert err.count("\n") == 1


def test_unavailable_forced_backend_is_saved_with_a_note_on_the_error(path, capsys):
    assert configure("--backend=tpu", "--force") == 0
    assert content(path)["force_backend"] == "tpu"
    err = capsys.readouterr().err
    assert tensor_ops.get_backend_info("tpu")["reason"] in err
    assert "'import tensor_ops' raises ImportError" in err


@pytest.mark.parametrize("backend", ["python", "numpy", "auto"])
def test_available_backend_needs_no_note(backend, path, capsys):
    assert configure(f"--backend={backend}") == 0
    assert capsys.readouterr().err == ""


def test_what_is_saved_happens_at_the_next_import(path, tmp_path):
    code = "import tensor_ops; print(tensor_ops.get_backend())"
    command = ("-m", "tensor_ops", "configure_backend")
    file = tmp_path / "backend.json"
    assert process(file, *command, "--backend=tpu", "--force").returncode == 0
    done = process(file, "-c", code)
    assert (done.returncode, done.stdout) == (1, "")
    assert "BackendUnavailableError: backend 'tpu' (forced by " in done.stderr
    # the command still starts, and mends it
    done = process(file, *command, "--show")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == shown(file, "tpu", "tpu")
    assert process(file, *command, "--backend=python").returncode == 0
    assert process(file, "-c", code).stdout == "python\n"


# Refused calls, with the file left as it was


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to do: give --show, --backend or --priority"),
        (("--force",), "--backend=NAME --force"),
        (("--force", "--show"), "--backend=NAME --force"),
        (("--force", "--priority=cpp"), "--backend=NAME --force"),
        (("--backend=auto", "--force"), "'auto' cannot be forced"),
        (("--backend=cdua",), "did you mean 'cuda'"),
        (("--backend=CUDA",), "did you mean 'cuda'"),
        (("--backend=",), "unknown backend ''"),
        (("--backend",), "expected one argument"),
        (("--backend=cpp", "--priority=cdua"), "did you mean 'cuda'"),
        (("--priority=",), "empty place"),
        (("--priority=cpp,,cuda",), "empty place"),
        (("--priority=cpp,cpp",), "names 'cpp' twice"),
        (("--priority=auto,cpp",), "--backend=auto"),
        (("--priority=auto,cpp",), "--priority=auto takes the order out of the file"),
        (("--priority", "cpp", "cuda"), "unrecognized arguments: cuda"),
        (("--back=cpp",), "unrecognized arguments"),
        (("cpp",), "unrecognized arguments"),
    ],
)
def test_usage_error_changes_nothing(arguments, says, path, capsys):
    assert configure("--backend=python") == 0
    before = path.read_bytes(), path.stat().st_mtime_ns
    capsys.readouterr()
    assert refused(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert os.listdir(path.parent) == ["backend.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{\n", ":2: is not valid JSON"),
        ('{\n\n"prefered_backend": "cpp"}', ":3: unknown key 'prefered_backend'"),
        ('{"force_backend": "cdua"}', ":1: force_backend"),
        ("\ufeff{}", ":1: starts with a byte order mark"),
    ],
)
@pytest.mark.parametrize("arguments", [("--backend=cpp",), ("--priority=cpp", "-s"), ("--show",)])
def test_broken_file_is_told_and_left(text, says, arguments, path, capsys):
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    before = path.read_bytes()
    assert configure(*arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tensor-ops: error: {path}{says}")
    assert err.count("\n") == 1
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["backend.json"]


def test_place_that_cannot_be_written_is_told(path, tmp_path, capsys, monkeypatch):
    assert configure("--backend=python") == 0
    before = path.read_bytes()
    capsys.readouterr()

    def refuse(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    assert configure("--backend=cpp", "--show") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{path} cannot be written: Read-only file system; nothing was changed" in err
    assert "--config PATH" in err
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["backend.json"]


@pytest.mark.parametrize("place", ["", "file/backend.json", "file"])
def test_config_option_that_cannot_be_a_file_is_told(place, path, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    target = tmp_path / place
    assert configure(f"--config={target}", "--backend=python") == 1
    assert str(target) in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "kept"
    assert not path.exists()


@pytest.mark.skipif(
    os.name != "posix" or sys.version_info >= (3, 13),
    reason="links of POSIX; from Python 3.13 on the file replaces a loop of them",
)
def test_loop_of_links_is_told(tmp_path, capsys):
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert configure(f"--config={loop}", "--backend=python") == 1
    assert str(loop) in capsys.readouterr().err


# The fastest


def test_the_fastest_may_be_preferred_and_needs_a_table(config_file, capsys):
    assert main(["configure_backend", "--backend=fastest"]) == 0
    out, err = capsys.readouterr()
    assert f"Saved preferred_backend = fastest, force_backend = None in {config_file}" in out
    assert err.startswith(
        "tensor-ops: note: no table: run 'tensor-ops tune'. Until then 'fastest' is the same as"
    )
    assert main(["tune", "--ops=silu", "--shape=8", "--seconds=0.001", "--backends=python"]) == 0
    capsys.readouterr()
    assert main(["configure_backend", "--backend=fastest", "--show"]) == 0
    out, err = capsys.readouterr()
    assert "Preferred backend: fastest" in out
    assert err == ""


def test_the_fastest_can_neither_be_forced_nor_be_a_place_in_the_priority(config_file, capsys):
    for words, says in (
        (["--backend=fastest", "--force"], "'fastest' cannot be forced"),
        (["--priority=cpp,fastest"], "'fastest' is no backend"),
        (["--backend=fastes"], "did you mean 'fastest'"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["configure_backend", *words])
        assert caught.value.code == 2
        assert says in capsys.readouterr().err
    assert not config_file.exists()


def test_doctor_says_what_the_fastest_goes_by(monkeypatch, capsys):
    monkeypatch.setenv("TENSOR_OPS_BACKEND", "fastest")
    assert main(["doctor"]) == 0
    assert "decided by TENSOR_OPS_BACKEND (fastest)\n    no table: run" in capsys.readouterr().out
    assert main(["tune", "--ops=silu", "--shape=8", "--seconds=0.001", "--backends=python"]) == 0
    capsys.readouterr()
    assert main(["doctor"]) == 0
    assert "for each call, the fastest of 4 measurements runs" in capsys.readouterr().out
