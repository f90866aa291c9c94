"""The table of ``tensor-ops tune``: what it answers, and when its file is not used."""

import json
import math
import os
import stat
import sys

import pytest

from tensor_ops.config import tuning_table
from tensor_ops.config.tuning_table import Entry, Table, TableError

DAY = "2026-11-22"


def entry(op, shape, dtype="float32", date=DAY, wrong=(), **seconds):
    return Entry(op, dtype, shape, date, seconds, dict(wrong))


def table(*entries, machine=None, backends=("python",)):
    facts = {name: tuning_table.backend_facts(name) for name in backends}
    return Table(machine or tuning_table.machine_facts(), facts, entries)


@pytest.fixture
def path():
    found = tuning_table.default_path()
    found.parent.mkdir(parents=True)
    return found


# Answers


def test_the_nearest_size_on_a_logarithmic_scale_decides():
    found = table(
        entry("silu", (1, 100), cpp=1, python=2), entry("silu", (100, 100), cpp=4, python=3)
    )
    assert found.limits("silu", "float32") == [1000]
    for size, fastest in (
        (0, "cpp"),
        (1, "cpp"),
        (1000, "cpp"),
        (1001, "python"),
        (9**9, "python"),
    ):
        ranking = found.ranking("silu", "float32", size)
        assert next(iter(ranking.seconds)) == fastest
        assert ranking.size == (100 if size <= 1000 else 10000)


def test_there_is_one_ranking_more_than_limits():
    sizes = (1, 10, 1000)
    found = table(*(entry("silu", (size,), cpp=size) for size in sizes))
    assert found.limits("silu", "float32") == pytest.approx([math.sqrt(10), 100])
    assert [each.size for each in found.rankings("silu", "float32")] == list(sizes)
    assert found.limits("silu", "float16") == []
    assert found.rankings("silu", "float16") == []


def test_what_was_not_measured_has_no_ranking():
    found = table(entry("silu", (8,), cpp=1))
    assert found.ranking("silu", "float16", 8) is None
    assert found.ranking("gelu", "float32", None) is None


def test_variants_count_alike():
    found = table(
        entry("gelu:tanh", (8,), cpp=1, opencl=2), entry("gelu:none", (2, 4), cpp=16, opencl=2)
    )
    assert found.ranking("gelu", "float32", 8).seconds == {"opencl": 2.0, "cpp": 4.0}


def test_without_a_size_all_sizes_count_alike():
    found = table(entry("silu", (1,), cpp=1, opencl=9), entry("silu", (10**6,), cpp=9, opencl=4))
    ranking = found.ranking("silu", "float32", None)
    assert (list(ranking.seconds), ranking.size) == (["cpp", "opencl"], None)


def test_a_backend_that_was_not_measured_everywhere_has_no_place():
    found = table(entry("gelu:tanh", (8,), cpp=1, opencl=2), entry("gelu:none", (8,), cpp=1))
    assert list(found.ranking("gelu", "float32", 8).seconds) == ["cpp"]


def test_a_backend_that_was_wrong_once_has_no_place():
    found = table(
        entry("gelu:tanh", (8,), cpp=1, opencl=2, date="2026-01-02"),
        entry("gelu:none", (8,), cpp=1, wrong={"opencl": "out of bound"}, date="2026-01-03"),
    )
    ranking = found.ranking("gelu", "float32", 8)
    assert list(ranking.seconds) == ["cpp"]
    assert ranking.wrong == {"opencl": "out of bound"}
    assert ranking.date == "2026-01-02"


def test_newer_entries_take_the_places_of_older_ones():
    older = table(entry("silu", (8,), cpp=1), entry("gelu:none", (8,), cpp=1))
    newer = entry("silu", (8,), opencl=2)
    assert older.updated([newer]) == (newer, older.entries[1])
    other = entry("silu", (8,), "float16", opencl=2)
    assert older.updated([other]) == (*older.entries, other)


# The file


def test_what_is_written_is_read(path):
    written = table(
        entry("silu", (2, 4), cpp=1e-6, python=2.5e-6),
        entry("rope", (2, 4), "bfloat16", wrong={"cpp": "differs in NaN"}, python=1e-3),
        Entry("silu", "float16", (8,), DAY, {"cpp": 2.0}, {}, {"cpp": (1.0, 3.0)}, True),
    )
    tuning_table.write(path, written)
    assert tuning_table.read(path) == written
    assert tuning_table.use(["python"]).table == written


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_nobody_else_can_read_or_write_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tuning_table.default_path()
    before = os.umask(0)
    try:
        tuning_table.write(path, table())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == [path.name]


def test_a_write_that_fails_leaves_the_old_one(path, monkeypatch):
    tuning_table.write(path, table(entry("silu", (8,), cpp=1)))
    before = path.read_text()

    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        tuning_table.write(path, table())
    assert path.read_text() == before
    assert os.listdir(path.parent) == [path.name]


def test_no_file_is_no_table_and_nothing_broken():
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, False)
    assert tuning.reason == "no table: run 'tensor-ops tune'"


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs decides elsewhere")
def test_without_a_home_folder_nothing_is_looked_for_here(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", ".")
    monkeypatch.chdir(tmp_path)
    place = tmp_path / ".cache" / "tensor-ops" / "tuning.json"
    place.parent.mkdir(parents=True)
    tuning_table.write(place, table())
    assert tuning_table.default_path() is None
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, False)
    assert "no home folder" in tuning.reason


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs decides elsewhere")
@pytest.mark.parametrize("value", ["", "relative"])
def test_a_cache_that_is_no_absolute_path_is_ignored(value, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    expected = tmp_path / "home" / ".cache" / "tensor-ops" / "tuning.json"
    assert tuning_table.default_path() == expected


ENTRY = {
    "op": "silu",
    "dtype": "float32",
    "shape": [8],
    "date": DAY,
    "seconds": {"cpp": 1.0},
    "wrong": {},
}
CONTENT = {"format": tuning_table.FORMAT, "machine": {}, "backends": {}, "entries": [ENTRY]}


def changed(**keys):
    return json.dumps(CONTENT | {"entries": [ENTRY | keys]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        "[" * 100_000,
        "{}",
        "\x00" * 100,
        json.dumps(CONTENT | {"format": 1}),
        json.dumps(CONTENT | {"entries": None}),
        json.dumps(CONTENT | {"entries": [1]}),
        json.dumps(CONTENT | {"entries": [{}]}),
        json.dumps(CONTENT | {"backends": {"cpp": 3}}),
        json.dumps(CONTENT | {"machine": 3}),
        changed(extra=1),
        changed(op=3),
        changed(date=None),
        changed(shape=8),
        changed(shape=["8"]),
        changed(shape=[0]),
        changed(shape=[True]),
        changed(shape=[10**400]),
        changed(shape=[2**40] * 10),
        changed(seconds=None),
        changed(seconds={"cpp": "1"}),
        changed(seconds={"cpp": 0}),
        changed(seconds={"cpp": -1.0}),
        changed(seconds={"cpp": math.nan}),
        changed(seconds={"cpp": math.inf}),
        changed(seconds={"cpp": 10**400}),
        changed(seconds={"cpp": 1e300}),
        changed(seconds={"cpp": True}),
        changed(wrong=[3]),
        changed(intervals={"cpp": 3}),
        changed(intervals={"cpp": [1.0]}),
        changed(intervals={"cpp": [2.0, 1.0]}),
        changed(intervals={"cpp": ["1", "2"]}),
        changed(intervals={"cpp": [0, 1.0]}),
        changed(is_disturbed="no"),
        changed(wrong={"cpp": 3}),
    ],
)
def test_a_file_that_is_no_table_is_not_used(path, text):
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(TableError, match=f"{path}: is not a table of 'tensor-ops tune'"):
        tuning_table.read(path)
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, True)
    assert str(path) in tuning.reason
    assert tuning.reason.endswith("run 'tensor-ops tune' again")
    assert path.read_text() == text


def test_bytes_that_are_no_text_are_not_used(path):
    path.write_bytes(b"\xff\xfe\x00")
    path.chmod(0o600)
    assert tuning_table.use(["python"]).is_broken


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_used(path, mode):
    tuning_table.write(path, table())
    path.chmod(mode)
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, True)
    assert f"others can write it (its mode is {mode:o})" in tuning.reason


@pytest.mark.skipif(os.name != "posix", reason="users of POSIX")
def test_a_file_of_another_user_is_not_used(path, monkeypatch):
    tuning_table.write(path, table())
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(
        os, "fstat", lambda number: os.stat_result((0o100600, 0, 0, 1, 4321, *[0] * 5))
    )
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, True)
    assert "belongs to user 4321" in tuning.reason


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_or_a_folder_is_not_waited_for(path):
    os.mkfifo(path)
    assert "is a pipe, no regular file" in tuning_table.use(["python"]).reason
    path.unlink()
    path.mkdir()
    assert "is a folder, no regular file" in tuning_table.use(["python"]).reason


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_that_cannot_be_read_is_not_used(path):
    tuning_table.write(path, table())
    path.chmod(0)
    assert "cannot be read: " in tuning_table.use(["python"]).reason


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs decides elsewhere")
def test_a_path_that_cannot_be_looked_at_is_no_error_of_a_call(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("a" * 300)))
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, True)
    assert "cannot be looked at: File name too long" in tuning.reason


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may look at all")
def test_a_folder_that_may_not_be_searched_is_no_error_of_a_call(path):
    tuning_table.write(path, table())
    path.parent.chmod(0)
    try:
        assert "cannot be looked at: Permission denied" in tuning_table.use(["python"]).reason
    finally:
        path.parent.chmod(0o700)


# Whether it fits


@pytest.mark.parametrize(
    ("key", "value"), [("cpu", "another CPU"), ("usable_cpus", 999), ("tensor_ops", "0.0.1")]
)
def test_a_table_of_another_machine_or_version_is_not_used(path, key, value):
    machine = tuning_table.machine_facts()
    tuning_table.write(path, table(machine=machine | {key: value}))
    tuning = tuning_table.use(["python"])
    assert (tuning.table, tuning.is_broken) == (None, True)
    expected = f"does not fit: {key} was {value!r} and is {machine[key]!r}"
    assert expected in tuning.reason


@pytest.mark.parametrize("key", ["version", "device_name", "compute_units", "driver"])
def test_a_table_of_another_device_driver_or_version_is_not_used(path, key):
    written = table()
    facts = written.backends["python"] | {key: "another"}
    tuning_table.write(path, Table(written.machine, {"python": facts}, ()))
    reason = tuning_table.use(["python"]).reason
    assert f"does not fit: backend 'python': {key} was 'another' and is " in reason


def test_a_backend_that_was_measured_on_an_unknown_device_does_not_fit(path):
    tuning_table.write(path, table(entry("silu", (8,), python=1), backends=()))
    reason = tuning_table.use(["python"]).reason
    assert "does not fit: backend 'python': version was None and is " in reason
    assert tuning_table.use([]).table is not None


def test_a_backend_that_cannot_run_does_not_matter(path):
    written = table()
    facts = {**written.backends, "nki": {"version": "1"}, "elsewhere": {"version": "1"}}
    tuning_table.write(path, Table(written.machine, facts, ()))
    assert tuning_table.use(["python", "nki"]).table is not None


def test_the_version_of_a_driver_is_what_the_backend_says(monkeypatch):
    from tensor_ops.backends import numpy_backend

    monkeypatch.setattr(numpy_backend, "driver_version", lambda: "550.1", raising=False)
    assert tuning_table.backend_facts("python")["driver"] == "550.1"

    def fail():
        raise RuntimeError("device lost")

    monkeypatch.setattr(numpy_backend, "driver_version", fail)
    assert tuning_table.backend_facts("python")["driver"] == "failed: RuntimeError: device lost"
