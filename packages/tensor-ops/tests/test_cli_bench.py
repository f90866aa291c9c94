"""``tensor-ops bench``: its options, its output, its exit statuses and its progress bar."""

import io
import json
import os
import sys
from datetime import datetime
from importlib.util import find_spec

import numpy as np
import pytest

from tensor_ops import benchmark
from tensor_ops.__main__ import main
from tensor_ops.progress import ProgressBar

QUICK = ("--shape=2x8", "--repeats=2", "--backends=python")


def test_table_and_json(tmp_path, capsys, other):
    file = tmp_path / "times.json"
    arguments = ["--ops", "silu", "rms_norm", "--shape=2x8,4", "--dtype=float32,bfloat16"]
    assert main(["bench", *arguments, "--backends=tpu", "--repeats=6", f"--json={file}"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert len(lines) == 1 + 2 * 2 * 2 * 3
    assert "95% interval" in lines[0]
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["silu", "2x8", "float32", name] for name in ("plain", "python", "tpu")
    ]
    assert all(line.endswith(" ok") for line in lines[1:] if benchmark.PLAIN not in line)
    record = json.loads(file.read_text())
    assert record["interrupted"] is False
    assert datetime.fromisoformat(record["date"]).tzinfo
    assert {name: each["version"] for name, each in record["backends"].items()} == {
        "python": np.__version__,
        "tpu": "1.0",
    }
    assert record["arguments"]["shape"] == [[2, 8], [4]]
    assert record["machine"]["usable_cpus"] >= 1
    assert len(record["results"]) == 24
    assert record["results"][0]["backend"] == "plain NumPy"
    first = record["results"][1]
    assert (first["op"], first["shape"], first["dtype"]) == ("silu", [2, 8], "float32")
    assert first["low_seconds"] <= first["median_seconds"] <= first["high_seconds"]
    assert first["within_bound"] is True


def test_available_backends_are_measured_by_default(capsys):
    assert main(["bench", "--ops=silu", "--shape=8", "--repeats=1"]) == 0
    assert "python" in capsys.readouterr().out


def test_wrong_result_fails_the_command(other, capsys):
    other.silu = lambda x: x
    assert main(["bench", "--ops=silu", "--shape=8", "--repeats=1", "--backends=tpu"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_interrupt_keeps_what_there_is(tmp_path, capsys, other):
    def interrupt(x, weight):
        raise KeyboardInterrupt

    other.rms_norm = interrupt
    file = tmp_path / "times.json"
    arguments = ["--ops=silu,rms_norm", "--shape=8", "--repeats=1", "--backends=tpu"]
    assert main(["bench", *arguments, f"--json={file}"]) == 130
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["op", "silu", "silu", "silu"]
    assert "stopped" in err
    record = json.loads(file.read_text())
    assert record["interrupted"] is True
    assert len(record["results"]) == 3


@pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")
def test_ctrl_c_exits_with_130(interrupted_command):
    words = ["bench", "--ops=silu", "--shape=8", "--backends=python", "--seconds=60"]
    bar = "0/1  silu 8 float32"  # with which the measuring has begun
    status, out, rest = interrupted_command(words, bar)
    assert status == 130
    assert "95% interval" in out
    assert rest.endswith("stopped after 0 results\r\n")
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--ops=slu",), "did you mean 'silu'"),
        (("--ops=silu,",), "there is no op ''"),
        (("--shape=2by8",), "128x4096"),
        (("--dtype=int8",), "bfloat16"),
        (("--backends=cdua",), "did you mean 'cuda'"),
        (("--seconds=0",), "positive"),
        (("--seconds=nan",), "positive"),
        (("--repeats=0",), "positive whole number"),
        (("--repeats=2", "--seconds=1"), "not allowed with"),
        (("--plot=times.gif",), ".svg, .png, .pdf"),
        (("--plot=times",), ".svg, .png, .pdf"),
    ],
)
def test_usage_errors(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def unmeasured(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("measured")

    monkeypatch.setattr(benchmark, "measure_op", refuse)


def test_missing_matplotlib_is_told_before_measuring(unmeasured, monkeypatch, tmp_path, capsys):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["bench", f"--plot={tmp_path / 'times.svg'}", *QUICK]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tensor-ops: error: --plot needs matplotlib")
    assert "pip install matplotlib" in err
    assert os.listdir(tmp_path) == ["prefix"]


@pytest.mark.parametrize("place", ["missing/times.json", ""])
def test_place_that_cannot_be_written_is_told_before_measuring(unmeasured, place, tmp_path, capsys):
    assert main(["bench", f"--json={tmp_path / place}", *QUICK]) == 1
    err = capsys.readouterr().err
    assert f"{tmp_path / place} cannot be written: " in err
    assert err.endswith("; nothing was measured\n")


def test_unavailable_backend_is_told_before_measuring(unmeasured, capsys):
    assert main(["bench", "--backends=python,nki"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("tensor-ops: error: backend 'nki' (named by --backends) is unavailable: ")


def test_missing_forced_backend_is_told_before_measuring(unmeasured, config_file, capsys):
    config_file.write_text('{"force_backend": "nki"}')
    assert main(["bench", "--shape=2x8"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"tensor-ops: error: backend 'nki' (forced by {config_file})")


@pytest.mark.parametrize("forced", ["nki", "tpu"])
def test_backends_are_named_in_spite_of_a_force(other, config_file, capsys, forced):
    """Whether the forced one is missing, as nki is here, or available."""
    config_file.write_text(json.dumps({"force_backend": forced}))
    assert main(["bench", "--ops=silu", *QUICK]) == 0
    shown = [line.split()[3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert shown == ["plain", "python"]


@pytest.mark.skipif(not find_spec("matplotlib"), reason="no matplotlib")
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_plot(suffix, tmp_path, other):
    file = tmp_path / f"times.{suffix}"
    other.supports = lambda op, dtype, device: None if op == "silu" else "only silu"
    arguments = ["--shape=2x256,8", "--repeats=6", "--backends=tpu", f"--plot={file}"]
    assert main(["bench", *arguments]) == 0
    assert file.stat().st_size > 1000


# The progress bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_one_line_that_is_wiped():
    terminal = Terminal()
    with ProgressBar(terminal) as bar:
        bar.show(0, 2, "0/2  first")
        bar.show(1, 2, "1/2  second")
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1:] == [
        "[........................] 0/2  first",
        "[############............] 1/2  second",
        "",
    ]
    assert "\n" not in terminal.getvalue()


def test_progress_is_silent_without_a_terminal():
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        bar.show(0, 1, "first")
    assert stream.getvalue() == ""
