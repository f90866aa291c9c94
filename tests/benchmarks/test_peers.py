"""`nox -s peers` measures what it says it measures, whatever a peer does."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import pages
from comparison import driver, goals, tables, timing
from comparison.cases import (
    ALLOCATED,
    REUSED,
    SHAPES,
    Case,
    arguments,
    cases,
    moved_bytes,
    outputs,
    with_tails,
)
from comparison.process import PeerProcess
from comparison.record import FORMAT, read
from comparison.results import Results
from harness.process import WorkerLostError
from peers import UnsupportedError, copy
from tensor_ops.ops import OPS
from tensor_ops.variants import VARIANTS

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "benchmarks" / "compare_peers.py"
LARGE = (2048, 4096)


def case(variant, mode=ALLOCATED, shape=(4, 128), dtype="float32"):
    return Case(variant, dtype, shape, 1, mode)


def test_every_op_is_measured_with_every_switch():
    assert {variant.op.name for variant in VARIANTS.values()} == set(OPS)
    assert {"gelu:tanh", "gelu:none", "rope", "rope:interleaved"} <= set(VARIANTS)
    assert len(cases()) == len(VARIANTS) * 4 * len(SHAPES) * 2 * 2


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(1, 64), (3, 256)])
def test_arguments_fit_the_op(variant, shape):
    wanted = case(variant, REUSED, shape)
    values = arguments(wanted)
    found = VARIANTS[variant]
    out = outputs(wanted, values)
    found.op.numpy(**values, **found.options, out=out if len(out) > 1 else out[0])
    assert all(array.any() for array in out)


def test_rows_repeat_and_processes_agree():
    first = arguments(case("silu_mul", shape=(300, 64)))
    assert (first["gate"][256:] == first["gate"][:44]).all()
    assert (first["gate"] != first["up"]).any()
    assert 1.9 < first["gate"].std() < 2.1


@pytest.mark.parametrize(
    ("variant", "streams"), [("rms_norm", 2), ("silu_mul", 3), ("add_rms_norm", 4)]
)
def test_bytes_are_those_of_the_streams(variant, streams):
    assert moved_bytes(case(variant, shape=(8, 4096), dtype="float16")) == streams * 8 * 4096 * 2


def test_bytes_of_rope_include_the_angles():
    assert moved_bytes(case("rope", shape=(8, 4096))) == 4 * (2 * 8 * 4096 + 2 * 8 * 64)


def test_errors_are_measured_out_to_the_tails():
    small = case("silu", shape=(16, 4096))
    assert abs(with_tails(small)["x"]).max() == pytest.approx(30, rel=1e-6)


# --- workers ---


def test_a_library_that_is_not_installed_is_absent(misbehaving, tmp_path):
    broken = (tmp_path / "extra" / "peers" / "misbehaving.py").with_name("elsewhere.py")
    broken.write_text("import no_such_library\n", encoding="utf-8")
    with PeerProcess("elsewhere", 1) as worker:
        assert "no_such_library" in worker.absent


def test_a_peer_is_asked_for_what_it_has(misbehaving):
    with PeerProcess(misbehaving, 1) as worker:
        answer = worker.ask({"ask": "prepare", "case": case("rope:interleaved").as_dict()})
    assert answer == {"unsupported": "no rope:interleaved is written for misbehaving"}


def test_a_crash_costs_one_answer(misbehaving, record):
    wanted = [case("silu"), case("rms_norm")]
    assert list(driver.measure(wanted, [misbehaving, "numpy"], record, 2)) == wanted
    crashed, fine = record.content["cells"]
    assert "SIGABRT" in crashed["entries"][misbehaving]["failure"]
    assert len(crashed["entries"]["numpy"]["us"]) == 2
    assert len(fine["entries"][misbehaving]["us"]) == 2
    assert len(fine["entries"][f"{misbehaving} slow"]["us"]) == 2
    # what it returns is its input: no mistake of a peer goes unnoticed
    errors = record.content["errors"]["rms_norm float32 allocated"]
    assert not errors[misbehaving]["within"]
    assert errors["numpy"]["within"]


def test_a_process_that_was_killed_is_replaced():
    with PeerProcess("numpy", 1) as worker:
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(WorkerLostError, match="SIGKILL"):
            worker.ask({"ask": "drop"})
        worker.restart()
        assert worker.ask({"ask": "drop"}) == {}


def test_tight_memory_changes_nothing_but_when_it_is_held(record, monkeypatch):
    monkeypatch.setattr(driver, "MOST_BYTES", 0)
    list(driver.measure([case("silu", REUSED)], ["numpy", "tensor_ops_cpp"], record, 3))
    (cell,) = record.content["cells"]
    assert {entry: len(found["us"]) for entry, found in cell["entries"].items()} == {
        "numpy": 3,
        "tensor_ops_cpp": 3,
    }


def test_a_worker_that_hangs_is_ended(misbehaving):
    with PeerProcess(misbehaving, 1, limit=1) as worker:
        with pytest.raises(WorkerLostError, match="no answer within 1 s"):
            worker.ask({"ask": "prepare", "case": case("gelu:tanh").as_dict()})
        worker.restart()
        assert "ways" in worker.ask({"ask": "prepare", "case": case("rms_norm").as_dict()})


def test_what_a_peer_raises_is_kept_without_folders(misbehaving, record):
    list(driver.measure([case("softmax"), case("rope")], [misbehaving], record, 1))
    failed, lacking = record.content["cells"]
    assert failed["entries"][misbehaving] == {"failure": "ArithmeticError: lost in .../file.py"}
    assert lacking["entries"] == {}
    assert record.content["unsupported"] == {"rope float32 allocated": {misbehaving: "no rope"}}


def test_every_copy_copies(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)  # not installed where this runs
    monkeypatch.setattr(copy, "pool", None)
    copy.start(2)
    wanted = case("silu_mul", REUSED)
    ways = copy.ways(wanted, {}, ())
    assert {"numpy", "memcpy"} <= set(ways)
    for way in ways.values():
        (target,) = way.read(None)
        target.fill(0)
        way.call()
        assert (target == 1).all()
        assert 2 * target.nbytes == moved_bytes(wanted)
    with pytest.raises(UnsupportedError):
        copy.ways(case("silu"), {}, None)


def test_slow_calls_have_fewer_rounds():
    assert driver.rounds_in_time(0.001, 7) == 7
    assert driver.rounds_in_time(10.0, 7) == driver.FEWEST_ROUNDS
    assert driver.rounds_in_time(10.0, 1) == 1


def test_a_round_is_filled_with_calls():
    calls, seconds = timing.calls_per_round(lambda: sum(range(1000)))
    assert 1 <= calls <= timing.MOST_CALLS
    assert seconds > 0
    assert timing.rest()


def test_rounds_that_were_planned_too_short_are_filled(monkeypatch):
    """A hiccup while a call is planned makes it look slow; its first round tells."""
    asked = []

    def ask(worker, request):
        asked.append(request["calls"])
        return {"seconds": 1e-4}

    monkeypatch.setattr(driver, "ask", ask)
    turn = driver.Turn("numpy", None, "", calls=1, rounds=3)
    entries = {"numpy": {"calls": 1, "seconds": []}}
    driver.take_turns(case("silu"), [turn], entries, is_tight=False)
    full = timing.calls_that_fill(1e-4)
    assert asked == [1, full, full]
    assert entries["numpy"] == {"calls": full, "seconds": [1e-4] * 3}
    assert timing.is_short(1, 1e-4)
    assert not timing.is_short(full, 1e-4)
    assert not timing.is_short(1, 1.0)


# --- the command ---


def test_a_small_run_leaves_a_record(tmp_path):
    path = tmp_path / "record.json"
    words = ["--ops", "silu,rope", "--dtypes", "float32", "--shapes", "2x128", "--threads", "1"]
    done = run(*words, "--peers", "numpy,tensor_ops_cpp", "--rounds", "2", "--json", path)
    assert done.returncode == 0, done.stderr
    assert "| silu | float32 | (2, 128) | 1 | `out=` |" in done.stdout
    content = read(path)
    assert content["format"] == FORMAT
    assert content["complete"]
    assert content["peers"]["numpy"] == {"label": "NumPy"}
    assert content["versions"]["tensor-ops-cpp"]
    assert [cell["variant"] for cell in content["cells"]] == [
        *["silu"] * 2,
        *["rope"] * 2,
        *["rope:interleaved"] * 2,
    ]
    for cell in content["cells"]:
        assert len(cell["entries"]["tensor_ops_cpp"]["us"]) == 2
    assert all(peers["tensor_ops_cpp"]["within"] for peers in content["errors"].values()), content[
        "errors"
    ]
    assert not list(tmp_path.glob("*.part"))
    assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_disturbed_cells_of_a_record_are_measured_again(tmp_path):
    path = tmp_path / "record.json"
    words = ["--ops", "silu,gelu:none", "--dtypes", "float32", "--shapes", "2x128"]
    few = ["--threads", "1", "--peers", "numpy,tensor_ops_cpp", "--rounds", "2"]
    assert run(*words, *few, "--json", path).returncode == 0
    before = json.loads(path.read_text(encoding="utf-8"))
    assert "no round" in run("--again", path).stdout
    before["cells"][1]["entries"]["numpy"] = {"calls": 1, "us": [50.0, 50.0]}
    path.write_text(json.dumps(before), encoding="utf-8")
    done = run("--again", path, *few)
    assert done.returncode == 0, done.stderr
    after = read(path)
    assert after["again"]["cells"] == 1
    assert after["date"] == before["date"]
    assert after["cells"][1]["entries"]["numpy"]["calls"] > 10
    del before["cells"][1], after["cells"][1]
    assert after["cells"] == before["cells"]


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"format": 0, "cells": []}), encoding="utf-8")
    done = run("--report", path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: old.json has format 0, this code reads 1; measure again")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--ops", "relu"], ["--shapes", "64"], ["--peers", "mkl"]])
def test_what_is_unknown_is_refused_with_what_is_known(words):
    done = run(*words)
    assert done.returncode == 2
    assert words[1] in done.stderr
    assert "Traceback" not in done.stderr


def run(*words):
    return subprocess.run(
        [sys.executable, COMMAND, *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "200"},
        timeout=120,
        check=False,
    )


# --- what is made of it ---


def test_ratios_are_taken_round_by_round(content):
    """One round in which everything took ten times as long changes nothing."""
    ours = [1.0, 1.0, 10.0, 1.0, 1.0, 1.0, 1.0]
    numpy = [2.0, 2.1, 21.0, 2.2, 1.9, 2.3, 2.05]
    results = Results(
        content(
            {
                ("silu", "float32", LARGE, REUSED): {
                    "tensor_ops_cpp": ours,
                    "numpy": numpy,
                    "torch slow": [9.0] * 7,
                    "torch": [3.0] * 7,
                    "copy torch": [0.5] * 7,
                    "copy numpy": [0.9] * 7,
                }
            }
        )
    )
    (cell,) = results.cells()
    ratios = [b / a for a, b in zip(ours, numpy, strict=True)]
    fastest = cell.fastest_peer()
    assert fastest.entry == "numpy"
    assert fastest.value == pytest.approx(statistics.median(ratios))
    assert (fastest.low, fastest.high) == pytest.approx((min(ratios), max(ratios)))
    assert cell.of_peer("torch").entry == "torch"
    assert cell.of_copy().value == pytest.approx(0.5)
    assert cell.of_copy().entry == "copy torch"
    assert cell.of_peer("jax") is None


def test_few_rounds_have_no_interval(content):
    entries = {"tensor_ops_cpp": [1.0] * 7, "numpy": [2.0] * 3}
    results = Results(content({("silu", "float32", LARGE, REUSED): entries}))
    (cell,) = results.cells()
    assert cell.of_peer("numpy")[:3] == (2.0, None, None)


def test_goals_are_computed_from_the_record(content):
    def entries(ours, numpy, torch, **others):
        times = {"tensor_ops_cpp": ours, "numpy": numpy, "torch": torch, **others}
        return {name: [value] * 7 for name, value in times.items()}

    times = {
        ("silu", "float32", LARGE, REUSED): entries(1.0, 4.0, 2.0, copy=0.9),
        ("gelu:none", "float32", LARGE, REUSED): entries(1.0, 4.0, 0.5, copy=0.74),
        ("silu", "float16", LARGE, REUSED): entries(1.0, 4.0, 3.0, copy=0.6),
        ("silu", "float64", LARGE, REUSED): entries(1.0, 4.0, 3.0, copy=0.1),
        ("silu", "float32", LARGE, ALLOCATED): entries(1.0, 4.0, 1.5),
        ("silu", "float32", (1, 4096), REUSED): entries(1.0, 1.1, 1.3, copy=0.2),
    }
    found = {
        (each.goal, each.what, each.dtype): each for each in goals.findings(Results(content(times)))
    }
    faster = found["reused: no peer faster", "gelu:none", "float32"]
    assert (faster.met, faster.clearly_missed, faster.found) == (False, True, 0.5)
    assert (faster.against, faster.lacking) == ("torch", 0.5)
    mean = found["reused: geometric mean", "2 ops and variants", "float32"]
    assert (mean.wanted, mean.found, mean.met) == (1.3, pytest.approx(1.0), False)
    twice = found["allocated, large: twice as fast as any peer", "silu", "float32"]
    assert (twice.found, twice.met) == (1.5, False)
    assert found["allocated: no peer faster", "silu", "float32"].met
    copies = {key[1:]: each for key, each in found.items() if "copy" in key[0]}
    assert {key: (each.wanted, each.met) for key, each in copies.items()} == {
        ("silu", "float32"): (0.85, True),
        ("gelu:none", "float32"): (0.75, False),
        ("silu", "float16"): (0.6, True),
    }
    row = found["one row, reused: 1.2 times any peer", "silu", "float32"]
    assert (row.found, row.against) == (pytest.approx(1.1), "numpy")


def test_our_own_packages_are_no_peers(content):
    ours = {"tensor_ops_cpp": [1.0] * 7, "tensor_ops": [0.5] * 7, "tensor_ops_opencl": [0.5] * 7}
    entries = ours | {"numpy": [3.0] * 7}
    results = Results(content({("silu", "float32", LARGE, REUSED): entries}))
    assert next(results.cells()).fastest_peer().entry == "numpy"


def test_tables_say_what_is_missed(content):
    entries = {"tensor_ops_cpp": [2.0] * 7, "numpy": [1.0] * 7, "copy": [1.0] * 7}
    results = Results(
        content(
            {("silu", "float32", LARGE, REUSED): entries},
            unsupported={"silu float32 reused": {"torch": "no silu"}},
        )
    )
    made = tables.blocks(results)
    line = "| reused: no peer faster | silu | float32 | (2048, 4096) | 1 | 0.50 (0.50 to 0.50) |"
    assert line in made["missed"]
    assert "| torch | float32, `out=` | all |" in made["absent"]
    assert "| silu | 2.00 s | 0.50 numpy | — | 0.50 | — | — | — |" in made["float32 (2048, 4096)"]


def test_only_blocks_of_a_page_are_filled(content):
    entries = {"tensor_ops_cpp": [1.0] * 7, "numpy": [2.0] * 7}
    results = Results(content({("silu", "float32", LARGE, REUSED): entries}))
    page = "a\n<!-- measured means -->\n<!-- end of means -->\nb\n"
    made = tables.blocks(results)
    filled = pages.fill(page, made)
    assert filled.startswith("a\n<!-- measured means -->\n| dtype |")
    assert filled.endswith("|\n<!-- end of means -->\nb\n")
    assert pages.fill(filled, made) == filled
    with pytest.raises(ValueError, match="speed of light"):
        pages.fill(page.replace("means", "speed of light"), made)


@pytest.mark.skipif(not importlib.util.find_spec("matplotlib"), reason="matplotlib draws them")
def test_figures_are_the_same_bytes_each_time(content, tmp_path):
    from comparison import figures

    entries = {"tensor_ops_cpp": [1.0] * 7, "torch": [2.0] * 7, "copy": [0.9] * 7}
    times = {
        ("silu", "float32", LARGE, mode): {
            name: rounds for name, rounds in entries.items() if mode == REUSED or name != "copy"
        }
        for mode in (REUSED, ALLOCATED)
    }
    results = Results(content(times))
    for name in ("one.svg", "two.svg"):
        figures.draw(results, "float32", tmp_path / name)
    drawn = (tmp_path / "one.svg").read_bytes()
    assert drawn == (tmp_path / "two.svg").read_bytes()
    assert b"fraction of the best copy" in drawn
