"""The figures of a GPU become findings and tables; where there are none, none are made up."""

import json

import pytest

from gpu import goals, report
from gpu.parts import (
    BANDWIDTH,
    CALL,
    GRAPH,
    HOST,
    HOST_ARRAYS,
    LARGE,
    VARIANTS,
    Part,
    bandwidth,
    beside_peers,
    moved,
    number_of_sets,
)


def figure(way, variant="rms_norm", dtype="bfloat16", shape=(16384, 8192), **us):
    times = {
        name.replace("__", " ").replace("_out", " out="): rounds for name, rounds in us.items()
    }
    part = Part(way, variant, dtype, shape)
    return part.as_dict() | {"us": {NAMES.get(name, name): t for name, t in times.items()}}


NAMES = {"ours": goals.OURS, "ours out=": f"{goals.OURS} out=", "compiled": "torch.compile"}


@pytest.fixture
def figures():
    """Figures that were never measured, of each kind."""
    return [
        figure(BANDWIDTH, shape=(1000, 4096), ours=[100, 101, 99], copy=[95, 96, 95]),
        figure(BANDWIDTH, "softmax", shape=(1000, 4096), ours=[100, 100, 100], copy=[89, 89, 89]),
        figure(BANDWIDTH, shape=(100, 65536), ours=[100, 100, 100], copy=[81, 82, 83]),
        figure(CALL, ours=[10, 10, 10], torch=[30, 31, 32], compiled=[12, 12, 12]),
        figure(GRAPH, ours=[10, 10, 10], torch=[30, 31, 32], compiled=[9, 9.5, 11]),
        figure(CALL, "silu", shape=(1, 4096), ours=[5, 5, 5], torch=[4, 4, 4]),
        figure(HOST, "silu", "float32", (1, 256), ours=[4, 4, 4], torch=[6, 6, 6]),
        figure(HOST_ARRAYS, "silu", "float32", ours_out=[10], ours=[12], copy=[9], python=[600]),
        figure(HOST_ARRAYS, "rms_norm", "float32"),
    ]  # fmt: skip


@pytest.fixture
def content(figures):
    return {
        "format": report.FORMAT,
        "date": "2000-01-01T00:00:00+00:00",
        "commit": {"id": "0" * 40, "dirty": False},
        "gpus": [{"name": "a GPU that is none", "driver": "1.2.3"}],
        "toolkit": "13.0",
        "python": "3.12",
        "system": "Linux",
        "cpus": 4,
        "versions": {"torch": "2"},
        "stages": {"install": {"status": "passed", "seconds": 61.2, "details": {}}},
        "figures": figures,
    }


def test_goals_are_held_against_the_figures(figures):
    found = {
        (each.goal, each.what): (round(each.found, 2), each.met) for each in goals.findings(figures)
    }
    assert found == {
        ("of the copy, rows of 1024 to 16384", "rms_norm"): (0.95, True),
        ("of the copy, rows of 1024 to 16384", "softmax"): (0.89, False),
        ("of the copy, rows of 65536", "rms_norm"): (0.82, True),
        ("no library faster", "rms_norm"): (1.2, True),
        ("no library faster, in a graph", "rms_norm"): (0.95, False),
        ("no library faster", "silu"): (0.8, False),
        ("a call costs the host 5 us", "silu"): (1.25, True),
        ("NumPy arrays: of the copies", "silu"): (0.9, True),
        ("NumPy arrays: times NumPy", "silu"): (50.0, True),
        ("geometric mean", "2 figures"): (0.98, False),
        ("geometric mean, in a graph", "1 figures"): (0.95, False),
    }


def test_what_the_rounds_leave_open_is_not_clearly_missed(figures):
    found = {(each.goal, each.what): each for each in goals.findings(figures)}
    assert not found["no library faster, in a graph", "rms_norm"].clearly_missed
    assert found["no library faster", "silu"].clearly_missed


def test_the_page_shows_them(content):
    made = report.blocks(content)
    assert set(made) == set(report.NAMES)
    assert "a GPU that is none" in made["setting"]
    assert "| of the copy, rows of 65536 | 1 of 1 | 0 |" in made["goals"]
    assert "| rms_norm | bfloat16 | 0.95 (" in made["bandwidth"]
    assert "1.20 torch.compile" in made["large"]
    assert "0.80 torch" in made["small"]
    assert "4.00 us" in made["host"]
    assert "| silu | 10.0 us | 0.90 | 50.0 |" in made["numpy"]
    assert "| rms_norm | — | — | — |" in made["numpy"]
    assert "| install | passed | 61 s |" in made["checks"]
    text = report.fill(report.PAGE.read_text(encoding="utf-8"), content)
    assert text.count(report.ABSENT) == 0


def test_without_a_record_nothing_is_claimed(tmp_path):
    assert report.read(tmp_path / "gpu_check.json") is None
    assert set(report.blocks(None).values()) == {report.ABSENT}


def test_a_record_of_another_format_is_refused(tmp_path):
    path = tmp_path / "gpu_check.json"
    path.write_text(json.dumps({"format": 99}), encoding="utf-8")
    with pytest.raises(ValueError, match="has format 99, this code reads 1"):
        report.read(path)


def test_failures_leave_gaps(content):
    content["figures"] = [
        Part(way, "silu", "float32", (1, 4096)).as_dict() | {"failures": {"all": "no"}}
        for way in (BANDWIDTH, CALL, GRAPH, HOST, HOST_ARRAYS)
    ]
    assert goals.findings(content["figures"]) == []
    assert report.blocks(content)["goals"] == "Not measured."


def test_every_op_is_measured_at_the_goals_sizes():
    parts = list(bandwidth())
    assert {part.variant for part in parts} == set(VARIANTS)
    assert {part.shape[1] for part in parts} == {1024, 4096, 16384, 65536}
    assert all(moved(part) >= 256 * 10**6 for part in parts)
    beside = list(beside_peers())
    assert {part.shape for part in beside} >= {(1, 4096), (128, 4096), LARGE}
    assert {part.variant for part in beside} == set(VARIANTS)


def test_caches_do_not_flatter():
    large, small = (Part(CALL, "silu", "float32", shape) for shape in (LARGE, (1, 4096)))
    assert number_of_sets(large, 60 * 2**20) == 2
    assert number_of_sets(small, 60 * 2**20) == 16
