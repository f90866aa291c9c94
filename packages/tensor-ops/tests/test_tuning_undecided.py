"""Cases in which ``tensor-ops tune`` does not find out which of two backends is faster."""

import time
import types

import numpy as np
import pytest

from tensor_ops import backends, benchmark, machine, timing, tuning
from tensor_ops.__main__ import main
from tensor_ops.config import tuning_table
from tensor_ops.config.tuning_table import Entry, Table
from tensor_ops.op import OPS
from tensor_ops.timing import Timing


def entry(is_disturbed=False, shape=(8,), **intervals):
    """Return an entry of backends whose medians are in the middle of their intervals."""
    seconds = {name: (low + high) / 2 for name, (low, high) in intervals.items()}
    return Entry("silu", "float32", shape, "2026-11-22", seconds, {}, intervals, is_disturbed)


@pytest.mark.parametrize(
    ("intervals", "auto", "order", "undecided"),
    [
        ({"a": (1, 2), "b": (3, 4)}, "ba", "ab", []),
        ({"a": (1, 3), "b": (2, 5)}, "ba", "ba", [("a", "b")]),
        ({"a": (1, 3), "b": (3, 5)}, "ba", "ba", [("a", "b")]),
        # Who is decidedly faster stays before the other, whatever stands between them.
        ({"a": (1, 3), "b": (2, 5), "c": (4, 6)}, "cba", "bac", [("a", "b"), ("b", "c")]),
        ({"a": (1, 9), "b": (2, 3), "c": (4, 5)}, "cba", "bca", [("b", "a"), ("c", "a")]),
        # One that auto would not run comes after those that it would.
        ({"a": (1, 3), "b": (2, 5)}, "b", "ba", [("a", "b")]),
    ],
)
def test_the_order_of_auto_decides_where_intervals_overlap(intervals, auto, order, undecided):
    ranking = entry(**intervals).ranking
    assert ranking.order(auto) == list(order)
    assert sorted(map(sorted, ranking.undecided)) == sorted(map(sorted, undecided))


def test_a_disturbed_measurement_decides_nothing():
    ranking = entry(True, a=(1, 2), b=(8, 9)).ranking
    assert ranking.undecided == [("a", "b")]
    assert ranking.order("ba") == ["b", "a"]
    both = Table({}, {}, (entry(a=(1, 2), b=(8, 9)), entry(True, (9,), a=(1, 2), b=(8, 9))))
    assert both.ranking("silu", "float32", 8).undecided == []
    assert both.ranking("silu", "float32", None).undecided == [("a", "b")]


def test_a_time_without_an_interval_is_exact():
    ranking = Entry("silu", "float32", (8,), "2026-11-22", {"a": 1.0, "b": 1.1}, {}).ranking
    assert (ranking.undecided, ranking.order("ba")) == ([], ["a", "b"])


@pytest.fixture
def timed(monkeypatch):
    """A second backend, and a function that sets the intervals that are measured."""
    module = types.ModuleType("other")
    module.supports = lambda op, dtype, device: None
    module.info = lambda: {"version": "1.0", "device_name": "a device"}
    for name, op in OPS.items():
        setattr(module, name, op.numpy)
    monkeypatch.setitem(backends.loaded, "tpu", backends.Backend("tpu", module, None))
    monkeypatch.setattr(machine.Contention, "is_seen", lambda self: False)

    def set_intervals(**intervals):
        found = {
            name: Timing((low + high) / 2, low, high, 6, 1)
            for name, (low, high) in intervals.items()
        }
        monkeypatch.setattr(timing, "time_calls", lambda *args, **kwargs: found)

    return set_intervals


def tune(*words):
    names = ["--backends=tpu,python", "--ops=silu", "--dtype=float32", "--shape=2x8,4x8"]
    return main(["tune", *names, *words])


def test_the_table_says_what_is_undecided(timed, capsys):
    timed(python=(1e-3, 3e-3), tpu=(2e-3, 9e-3))
    assert tune() == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert " ".join(lines[1].split()) == (
        "silu 2x8 float32 undecided python 2.00 ms, tpu 5.50 ms, undecided: python and tpu"
    )
    assert "2 of 2 measurements leave undecided which of two backends is faster" in out
    assert main(["tune", "--show"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == lines[1]
    [first, _] = tuning_table.read(tuning_table.default_path()).entries
    assert first.intervals == {"python": (1e-3, 3e-3), "tpu": (2e-3, 9e-3)}


def test_the_table_says_what_was_disturbed(timed, monkeypatch, capsys):
    timed(python=(1e-3, 2e-3), tpu=(8e-3, 9e-3))
    assert tune() == 0
    quiet = capsys.readouterr().out
    assert quiet.splitlines()[1].split()[3] == "python"
    assert "undecided" not in quiet
    monkeypatch.setattr(machine.Contention, "is_seen", lambda self: True)
    assert tune() == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split()[3] == "undecided"
    assert out.splitlines()[1].endswith("disturbed by other processes")
    assert "Other processes took the processors during 2 of 2 measurements" in out


def test_every_backend_has_an_interval():
    case = benchmark.Case("silu", (2, 8))
    found = tuning.measure(case, ["python"], seconds=0)
    low, high = found.intervals["python"]
    assert 0 < low <= found.seconds["python"] <= high


def test_a_slow_backend_has_an_interval_too(monkeypatch):
    def slow(x):
        time.sleep(0.002)
        return OPS["silu"].numpy(x)

    module = types.ModuleType("slow")
    module.supports, module.silu = (lambda op, dtype, device: None), slow
    monkeypatch.setitem(backends.loaded, "tpu", backends.Backend("tpu", module, None))
    found = tuning.measure(benchmark.Case("silu", (2, 8)), ["tpu", "python"], seconds=0)
    assert set(found.intervals) == set(found.seconds) == {"tpu", "python"}


def test_a_variable_of_the_backend_is_part_of_what_a_table_holds_for(monkeypatch):
    def table():
        facts = {"python": tuning_table.backend_facts("python")}
        return Table(tuning_table.machine_facts(), facts, (entry(python=(1, 2)),))

    made = table()
    assert tuning_table.misfit(made, ["python"]) is None
    monkeypatch.setenv("TENSOR_OPS_CPP_ISA", "x86-64-v2")
    assert tuning_table.misfit(made, ["python"]) is None
    monkeypatch.setenv("TENSOR_OPS_PYTHON_ISA", "x86-64-v2")
    assert tuning_table.misfit(made, ["python"]) == (
        "backend 'python': variables was None and is 'TENSOR_OPS_PYTHON_ISA=x86-64-v2'"
    )
    made = table()
    assert tuning_table.misfit(made, ["python"]) is None
    monkeypatch.setenv("TENSOR_OPS_PYTHON_ISA", "x86-64-v3")
    assert "TENSOR_OPS_PYTHON_ISA=x86-64-v3" in tuning_table.misfit(made, ["python"])


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that says how long threads have waited, and processors worked, in seconds."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    clock = [1000.0]
    monkeypatch.setattr(machine.time, "monotonic", lambda: clock[0])

    def after(seconds, waited, worked, own=0.0):
        clock[0] += seconds
        task = tmp_path / "proc/self/task"
        for name, share in (("1", waited / 2), ("2", waited / 2)):
            (task / name).mkdir(parents=True, exist_ok=True)
            (task / name / "schedstat").write_text(f"0 {int(share * 1e9)} 7\n")
        ticks = int((1000 + worked) * machine.os.sysconf("SC_CLK_TCK"))
        (tmp_path / "proc/stat").write_text(f"cpu  {ticks} 0 0 9999 0 0 0 0 0 0\ncpu0 1 2\n")
        monkeypatch.setattr(
            machine.os,
            "times",
            lambda: types.SimpleNamespace(
                user=own, system=0.0, children_user=0.0, children_system=0.0
            ),
        )

    return after


@pytest.mark.parametrize(
    ("waited", "worked", "own", "expected"),
    [
        (0.0, 1.0, 1.0, False),  # nobody else
        (0.0, 2.0, 1.0, False),  # another process, on a processor of its own
        (0.5, 1.0, 1.0, False),  # our threads wait for each other
        (0.5, 2.0, 1.0, True),
    ],
)
def test_contention(system, waited, worked, own, expected):
    system(0, 0, 0)
    contention = machine.Contention()
    system(1, waited, worked, own)
    assert contention.is_seen() is expected


def test_contention_where_the_system_does_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    contention = machine.Contention()
    np.ones(1000).sum()
    assert contention.is_seen() is False
