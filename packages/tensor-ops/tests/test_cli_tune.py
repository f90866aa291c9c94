"""``tensor-ops tune``: measuring, keeping, showing and removing."""

import json
import os
import sys
import types

import numpy as np
import pytest

from tensor_ops import backends, benchmark, tuning
from tensor_ops.__main__ import main
from tensor_ops.config import tuning_table
from tensor_ops.op import OPS
from tensor_ops.op.arguments import DTYPES
from tensor_ops.variants import VARIANTS

QUICK = ("--shape=2x8", "--dtype=float32", "--seconds=0.001", "--backends=python")


@pytest.fixture
def other(monkeypatch):
    """A second backend: NumPy's ops under another name, to be changed by a test."""
    module = types.ModuleType("other")
    module.supports = lambda op, dtype, device: None
    module.info = lambda: {"version": "1.0", "device_name": "a device"}
    module.driver_version = lambda: "550"
    for name, op in OPS.items():
        setattr(module, name, op.numpy)
    monkeypatch.setitem(backends.loaded, "tpu", backends.Backend("tpu", module, None))
    return module


@pytest.fixture
def path():
    return tuning_table.default_path()


def tune(*arguments):
    return main(["tune", "--shape=2x8", "--dtype=float32", "--seconds=0.001", *arguments])


def test_times_are_kept(path, capsys, other):
    assert tune("--ops=silu,gelu", "--backends=tpu,python") == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].split() == ["op", "shape", "dtype", "fastest", "time", "of", "a", "call"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        [name, "2x8", "float32"] for name in ("silu", "gelu:tanh", "gelu:none")
    ]
    assert f"Saved 3 measurements in {path}, which has 3 now." in lines
    assert lines[-1] == "To go by them: tensor-ops configure_backend --backend=fastest"
    table = tuning_table.read(path)
    assert {entry.op for entry in table.entries} == {"silu", "gelu:tanh", "gelu:none"}
    for entry in table.entries:
        assert set(entry.seconds) == {"tpu", "python"}
        assert all(0 < seconds < 1 for seconds in entry.seconds.values())
    assert table.backends["tpu"] == {
        "version": "1.0",
        "device_name": "a device",
        "compute_units": 0,
        "driver": "550",
        "variables": None,
    }
    assert table.backends["python"]["version"] == np.__version__
    assert table.machine == tuning_table.machine_facts()


def test_every_op_dtype_and_size_is_measured_by_default(monkeypatch, path, capsys):
    seen = []
    monkeypatch.setattr(
        tuning, "measure", lambda case, *rest: seen.append(case) or measured(case.op, case)
    )
    assert main(["tune", "--backends=python"]) == 0
    assert {(case.op, case.dtype) for case in seen} == {(op, d) for op in VARIANTS for d in DTYPES}
    assert len(seen) == len(VARIANTS) * len(DTYPES) * len(tuning.SHAPES)
    shown = " ".join("x".join(map(str, shape)) for shape in tuning.SHAPES)
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"default: {shown}" in text
    assert f"default: {tuning.SECONDS:g}" in text


def measured(op, case):
    return tuning_table.Entry(op, case.dtype, case.shape, "2026-11-22", {"python": 1.0}, {})


def test_a_wrong_result_is_never_the_fastest(path, capsys, other):
    other.silu = lambda x: x
    assert tune("--ops=silu", "--backends=tpu,python") == 0
    assert "tpu LEFT OUT: its result is out of its bound" in capsys.readouterr().out
    [entry] = tuning_table.read(path).entries
    assert list(entry.seconds) == ["python"]
    assert entry.wrong == {"tpu": "its result is out of its bound"}


def test_a_failing_backend_is_never_the_fastest(path, other):
    def fail(x):
        raise RuntimeError("device lost")

    other.silu = fail
    assert tune("--ops=silu", "--backends=tpu,python") == 0
    assert tuning_table.read(path).entries[0].wrong == {"tpu": "RuntimeError: device lost"}


def test_what_a_backend_does_not_take_is_not_timed(path, other):
    other.supports = lambda op, dtype, device: "no silu"
    assert tune("--ops=silu", "--backends=tpu,python") == 0
    [entry] = tuning_table.read(path).entries
    assert (list(entry.seconds), entry.wrong) == (["python"], {})


def test_what_was_measured_before_stays(path, capsys, other):
    assert tune("--ops=silu", "--backends=tpu") == 0
    assert tune("--ops=rms_norm,silu", "--backends=python") == 0
    assert f"Saved 2 measurements in {path}, which has 2 now." in capsys.readouterr().out
    assert tune("--ops=silu", "--backends=python", "--shape=4x8") == 0
    table = tuning_table.read(path)
    found = {(entry.op, entry.shape): list(entry.seconds) for entry in table.entries}
    # --shape adds to the shape that `tune` gives
    assert found == {
        ("silu", (2, 8)): ["python"],
        ("rms_norm", (2, 8)): ["python"],
        ("silu", (4, 8)): ["python"],
    }
    assert set(table.backends) == {"tpu", "python"}


@pytest.mark.parametrize("how", ["corrupt", "misfit"])
def test_a_table_that_cannot_be_used_is_replaced(how, path, capsys):
    assert tune("--ops=silu", "--backends=python") == 0
    if how == "corrupt":
        path.write_text("{")
    else:
        content = json.loads(path.read_text())
        content["machine"]["cpu"] = "another"
        path.write_text(json.dumps(content))
    capsys.readouterr()
    assert tune("--ops=gelu:none", "--backends=python") == 0
    err = capsys.readouterr().err
    assert err.startswith("tensor-ops: note: ")
    assert err.endswith("; it is replaced\n")
    assert [entry.op for entry in tuning_table.read(path).entries] == ["gelu:none"]


def test_a_backend_that_is_named_with_its_device_is_that_backend(path):
    assert tune("--ops=silu", "--backends=python:cpu,python") == 0
    table = tuning_table.read(path)
    assert (list(table.backends), list(table.entries[0].seconds)) == (["python"], ["python"])


def test_show_and_clear(path, capsys, other):
    assert main(["tune", "--show"]) == 1
    assert capsys.readouterr().out.startswith(f"There is no table at {path}; 'tensor-ops tune'")
    assert main(["tune", "--clear"]) == 0
    assert capsys.readouterr().out == f"There is no table at {path}\n"
    assert tune("--ops=silu", "--backends=python,tpu") == 0
    made = capsys.readouterr().out
    assert main(["tune", "--show"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[:2] == made.splitlines()[:2]
    for text in ("usable_cpus", str(path), "version 1.0, device_name a device, driver 550"):
        assert text in shown
    assert main(["tune", "--clear"]) == 0
    assert capsys.readouterr().out == f"Removed {path}\n"
    assert not path.exists()


def test_show_says_that_a_table_is_not_used(path, capsys, other):
    assert tune("--ops=silu", "--backends=tpu") == 0
    other.driver_version = lambda: "560"
    assert main(["tune", "--show"]) == 1
    err = capsys.readouterr().err
    assert "not used, it does not fit: backend 'tpu': driver was '550' and is '560'" in err
    path.write_text("{")
    assert main(["tune", "--show"]) == 1
    assert f"{path}: is not a table of 'tensor-ops tune'" in capsys.readouterr().err
    assert main(["tune", "--clear"]) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--ops=slu",), "did you mean 'silu'"),
        (("--shape=2by8",), "128x4096"),
        (("--dtype=int8",), "bfloat16"),
        (("--backends=cdua",), "did you mean 'cuda'"),
        (("--backends=",), "unknown backend ''"),
        (("--backends",), "expected at least one argument"),
        (("--seconds=0",), "positive"),
        (("--show", "--clear"), "not allowed with"),
        (("--show", "--ops=silu"), "give them alone"),
        (("--clear", "--seconds=1"), "give them alone"),
    ],
)
def test_usage_errors(arguments, says, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["tune", *arguments])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def unmeasured(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("measured")

    monkeypatch.setattr(tuning, "measure", refuse)


def test_unavailable_backend_is_told_before_measuring(unmeasured, capsys):
    assert main(["tune", "--backends=python,nki"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("tensor-ops: error: backend 'nki' (named by --backends) is unavailable: ")


@pytest.mark.parametrize("forced", ["nki", "tpu"])
def test_backends_are_named_in_spite_of_a_force(other, config_file, path, forced):
    config_file.write_text(json.dumps({"force_backend": forced}))
    assert tune("--ops=silu", "--backends=python") == 0
    assert set(tuning_table.read(path).backends) == {"python"}


def test_place_that_cannot_be_written_is_told_before_measuring(unmeasured, path, capsys):
    path.parent.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.parent.write_text("a file where the folder should be")
    assert main(["tune", *QUICK]) == 1
    err = capsys.readouterr().err
    assert f"{path} cannot be written: " in err
    assert "nothing was measured" in err
    path.parent.parent.unlink()
    path.mkdir(parents=True)
    assert main(["tune", *QUICK]) == 1
    assert "nothing was measured" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_folder_that_is_read_only_is_told_before_measuring(unmeasured, path, capsys):
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o500)
    assert main(["tune", *QUICK]) == 1
    assert "nothing was measured" in capsys.readouterr().err
    path.parent.chmod(0o700)


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs decides elsewhere")
@pytest.mark.parametrize("option", ["--show", "--clear", "--ops=silu"])
def test_without_a_home_folder_there_is_no_place(option, unmeasured, monkeypatch, capsys):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", ".")
    assert main(["tune", option]) == 1
    assert "no home folder; set XDG_CACHE_HOME" in capsys.readouterr().err


def test_shape_that_nothing_can_run_changes_nothing(path, capsys):
    assert tune("--ops=silu", "--backends=python") == 0
    before = path.read_text()
    capsys.readouterr()
    assert main(["tune", "--ops=rope", "--shape=7", *QUICK[1:]]) == 1
    out, err = capsys.readouterr()
    assert "python LEFT OUT: " in out
    assert "the table is as it was" in err
    assert path.read_text() == before


def test_interrupt_keeps_the_old_table(path, capsys, other):
    assert tune("--ops=silu", "--backends=python") == 0
    before = path.read_text()

    def interrupt(x, weight):
        raise KeyboardInterrupt

    other.rms_norm = interrupt
    assert tune("--ops=silu,rms_norm", "--backends=tpu") == 130
    assert capsys.readouterr().err == "stopped; the table is as it was\n"
    assert path.read_text() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")
def test_ctrl_c_exits_with_130_and_writes_nothing(path, interrupted_command):
    words = ["tune", "--ops=silu", "--seconds=60", *QUICK[::3]]
    bar = "0/4  silu 2x8 float32"  # with which the measuring has begun
    status, _, rest = interrupted_command(words, bar)
    assert status == 130
    assert rest.endswith("stopped; the table is as it was\r\n")
    assert not path.exists()


def test_an_entry_is_of_its_case(other):
    case = benchmark.Case("silu", (2, 8), "bfloat16")
    entry = tuning.measure(case, ["tpu", "python"], 0.001)
    assert (entry.op, entry.dtype, entry.shape, entry.size) == ("silu", "bfloat16", (2, 8), 16)
    assert entry.date >= "2026"
