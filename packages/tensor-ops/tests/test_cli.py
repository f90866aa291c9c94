"""Behaviour that all commands share, and the two small ones: ``info`` and ``explain``."""

import json
import os
import re
import subprocess
import sys
import warnings

import pytest

import tensor_ops
from tensor_ops.__main__ import main

VARIABLES = (
    "TENSOR_OPS_CONFIG",
    "TENSOR_OPS_FORCE_BACKEND",
    "TENSOR_OPS_BACKEND",
    "TENSOR_OPS_BACKEND_PRIORITY",
)
COMMANDS = ("configure_backend", "test_capabilities", "info", "explain", "bench")


def process(*command, **environ):
    # argparse ignores that its help cannot be written, so it must be in the buffer until the end
    unwanted = (*VARIABLES, "PYTHONUNBUFFERED")
    clean = {name: value for name, value in os.environ.items() if name not in unwanted}
    return subprocess.run(
        command, capture_output=True, text=True, env=clean | environ, timeout=120, check=False
    )


def module(*arguments, **environ):
    return process(sys.executable, "-m", "tensor_ops", *arguments, **environ)


def reason_against_tpu():
    """Return why it is not there, which depends on what is installed beside tensor_ops."""
    return tensor_ops.get_backend_info("tpu")["reason"]


# Starting


def test_script_and_module_are_the_same_command(tmp_path):
    script = os.path.join(os.path.dirname(sys.executable), "tensor-ops")
    for start in ([script], [sys.executable, "-m", "tensor_ops"]):
        done = process(*start, "--version", TENSOR_OPS_FORCE_BACKEND="tpu")
        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            f"tensor-ops {tensor_ops.__version__}\n",
            "",
        )


@pytest.mark.parametrize("arguments", [(), ("info",), ("bench", "--repeats=1"), ("info", "--json")])
def test_missing_forced_backend_fails_only_what_runs_ops(arguments):
    if not arguments:
        done = process(sys.executable, "-c", "import tensor_ops", TENSOR_OPS_FORCE_BACKEND="tpu")
        assert "BackendUnavailableError" in done.stderr
    else:
        done = module(*arguments, TENSOR_OPS_FORCE_BACKEND="tpu")
        assert done.stderr == (
            "tensor-ops: error: backend 'tpu' (forced by TENSOR_OPS_FORCE_BACKEND) is unavailable: "
            f"{reason_against_tpu()}\n"
        )
    assert done.returncode == 1
    assert done.stdout == ""


def test_broken_configuration_is_one_line(tmp_path):
    path = tmp_path / "backend.json"
    path.write_text('{\n"prefered_backend": "cpp"}')
    done = module("info", TENSOR_OPS_CONFIG=str(path))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"tensor-ops: error: {path}:2: unknown key 'prefered_backend'")
    assert done.stderr.count("\n") == 1
    assert module("info", "python", TENSOR_OPS_CONFIG=str(path)).returncode == 0


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("info", "--nonsense"), ("explain",)])
def test_usage_error_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "error:" in err


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_shows_what_to_type(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*([command] if command else []), "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "tensor-ops" in text
    if command != "info":
        assert re.search("examples?:", text)


@pytest.mark.parametrize("name", ["configure_backend", "configure-backend"])
def test_dashes_and_underscores_are_the_same(name, config_file, capsys):
    assert main([name, "--backend=python"]) == 0
    assert main(["test-capabilities", "--json"]) == 0
    assert main(["explain", "rms-norm"]) == 0
    assert json.loads(config_file.read_text())["preferred_backend"] == "python"


@pytest.mark.skipif(os.name != "posix", reason="pipes and /dev/full of POSIX")
@pytest.mark.parametrize("arguments", ["--help", "doctor", "info python"])
def test_reader_that_goes_away_ends_it_quietly(arguments):
    # the sleep makes sure that the reader has gone
    command = f"(sleep 0.3; exec {sys.executable} -m tensor_ops {arguments})"
    done = process("bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk_is_an_error():
    done = process("sh", "-c", f"{sys.executable} -m tensor_ops info python > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("tensor-ops: error: ")
    assert done.stderr.count("\n") == 1


def test_closed_output_does_no_harm():
    done = process("sh", "-c", f"{sys.executable} -m tensor_ops info python >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="POSIX shells")
def test_error_with_a_closed_output_is_one_line():
    command = 'exec "$0" -m tensor_ops info >&-'
    done = process("sh", "-c", command, sys.executable, TENSOR_OPS_FORCE_BACKEND="tpu")
    assert done.returncode == 1
    assert re.fullmatch("tensor-ops: error: backend 'tpu' .*\n", done.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    "arguments", [("configure_backend", "--backend=python", "--show"), ("doctor",), ("info",)]
)
def test_path_that_the_output_cannot_encode_is_no_failure(tmp_path, arguments, encoding):
    path = tmp_path / os.fsdecode(b"caf\xe9.json")
    path.write_text("{}")
    done = module(*arguments, TENSOR_OPS_CONFIG=str(path), PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\udce9.json" in done.stdout


def test_warning_of_a_file_out_of_reach_is_told_once_whatever_the_filter(
    config_file, monkeypatch, capsys
):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tensor_ops.config.location.os.lstat", refuse)
    monkeypatch.setattr("tensor_ops.config.location.prefix_file", lambda: os.devnull + "/none")
    monkeypatch.setattr("tensor_ops.config.location.exists", lambda *arguments: False)
    for action in ("error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            assert main(["doctor"]) == 0
        _, err = capsys.readouterr()
        assert err.count("tensor-ops: warning: ") == err.count("cannot be looked at") == 1


def test_interrupt_exits_with_130(monkeypatch):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("tensor_ops.registry.get_backend_info", interrupt)
    assert main(["info", "python"]) == 130


# info


def test_info_of_a_backend_is_get_backend_info(capsys):
    assert main(["info", "numpy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == tensor_ops.get_backend_info("python")
    assert main(["info", "tpu"]) == 0
    text = capsys.readouterr().out
    assert re.search("^available +False$", text, re.M)
    assert re.search(f"^reason +{re.escape(reason_against_tpu())}$", text, re.M)


def test_info_is_about_what_runs(config_file, capsys):
    config_file.write_text('{"preferred_backend": "python"}')
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["backend"] == "python"
    assert found["config_file"] == found["decided_by"] == str(config_file)
    assert found["info"] == tensor_ops.get_backend_info("python")
    assert main(["info"]) == 0
    assert re.search("^display_name +Python", capsys.readouterr().out, re.M)


def test_fallback_is_told_on_stderr(config_file, capsys):
    config_file.write_text('{"preferred_backend": "tpu", "backend_priority": ["python"]}')
    assert main(["info", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["backend"] == "python"
    assert err.startswith("tensor-ops: warning: backend 'tpu', preferred by ")


def test_unknown_backend_gets_the_nearest_name(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["info", "pyhton"])
    assert caught.value.code == 2
    assert "did you mean 'python'" in capsys.readouterr().err


# explain


def test_explain_names_backend_and_reason(config_file, capsys):
    config_file.write_text('{"backend_priority": ["tpu", "python"]}')
    assert main(["explain", "silu", "--shape", "3x5", "--dtype", "float16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "silu for float16 on cpu: python runs"
    assert lines[1] == f"  decided by {config_file} (auto)"
    assert lines[2] == f"  tpu: {reason_against_tpu()}"
    assert lines[3] == "  python: chosen"


def test_explain_takes_a_variant_of_an_op(capsys):
    assert main(["explain", "gelu:none", "--backend", "python"]) == 0
    assert capsys.readouterr().out.startswith("gelu for float32 on cpu: python runs\n")


def test_explain_as_json(capsys):
    assert main(["explain", "silu", "--backend", "python", "--dtype", "bfloat16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shape"] == [128, 4096]
    assert (found["op"], found["dtype"], found["backend"]) == ("silu", "bfloat16", "python")
    assert found["steps"] == [{"backend": "python", "reason": None}]


@pytest.mark.parametrize("where", ["environment", "option"])
def test_explain_fails_when_nothing_can_run(where, monkeypatch, capsys):
    if where == "environment":
        monkeypatch.setenv("TENSOR_OPS_FORCE_BACKEND", "tpu")
    assert main(["explain", "silu", *(["--backend=tpu"] if where == "option" else [])]) == 1
    text = capsys.readouterr().out
    assert "no backend can run" in text
    assert f"tpu: {reason_against_tpu()}" in text


def test_explain_needs_no_memory_for_the_shape(capsys):
    assert main(["explain", "silu", "--shape", "1048576x1048576"]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["slu"], "did you mean 'silu'"),
        (["silu", "--shape", "3,5"], "128x4096"),
        (["silu", "--shape", "0x5"], "128x4096"),
        (["silu", "--shape", "-3"], "128x4096"),
        (["silu", "--shape", "x"], "128x4096"),
        (["silu", "--shape", "9999999999x9999999999"], "too large"),
        (["silu", "--dtype", "int8"], "bfloat16"),
        (["silu", "--backend", "cdua"], "did you mean 'cuda'"),
    ],
)
def test_explain_refuses(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["explain", *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err
