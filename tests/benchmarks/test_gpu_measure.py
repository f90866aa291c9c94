"""The program that measures on a GPU goes through all it measures, on a CPU that plays the GPU."""

import contextlib
import functools
import json
import sys
import time
import types

import numpy as np
import pytest

import tensor_ops
from gpu import goals, parts, report
from gpu.parts import VARIANTS
from tensor_ops.ops import OPS

torch = pytest.importorskip("torch")


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


class Stream:
    def wait_stream(self, other):
        pass


class Graph:
    """Replays nothing, at once."""

    def replay(self):
        time.sleep(1e-5)


@pytest.fixture
def measure(monkeypatch):
    """The program, with a backend and a GPU that are this CPU."""
    backend = types.ModuleType("tensor_ops_cuda")
    for name in OPS:
        setattr(backend, name, functools.partial(getattr(tensor_ops, name), backend="python"))
    backend.probe = lambda: {"available": True}
    monkeypatch.setitem(sys.modules, "tensor_ops_cuda", backend)
    cuda = {
        "Event": Event,
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": contextlib.nullcontext,
        "stream": contextlib.nullcontext,
        "current_stream": Stream,
        "synchronize": lambda: None,
        "_sleep": lambda cycles: None,
        "empty_cache": lambda: None,
        "get_device_properties": lambda index: types.SimpleNamespace(L2_cache_size=1 << 10),
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(parts, "DEVICE", "cpu")
    monkeypatch.setattr(parts, "DTYPES", ("float32",))
    monkeypatch.setattr(parts, "TRAFFIC", 1 << 16)
    monkeypatch.setattr(parts, "ROW_LENGTHS", (256,))
    monkeypatch.setattr(parts, "LONG_ROWS", 512)
    monkeypatch.setattr(parts, "SMALL", ((1, 256),))
    monkeypatch.setattr(parts, "LARGE", (16, 256))
    # compiling all of them takes minutes
    monkeypatch.setattr(torch, "compile", lambda function: function)
    empty = torch.empty

    def without_pinning(*shape, pin_memory=False, **options):
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", without_pinning)
    from gpu import measure, timing

    monkeypatch.setattr(timing, "ROUNDS", 2)
    monkeypatch.setattr(timing, "TURN", 1e-4)
    monkeypatch.setattr(timing, "MOST_CALLS", 3)
    monkeypatch.setattr(timing, "HOST_CALLS", 5)
    monkeypatch.setattr(measure, "HOST_BYTES", 1 << 16)
    measure.cache_bytes.cache_clear()
    yield measure
    torch.set_grad_enabled(True)
    sys.modules.pop("gpu.measure", None)


def run(measure, monkeypatch, tmp_path, seconds):
    path = tmp_path / "figures.jsonl"
    words = ["measure", "--out", str(path), "--seconds", str(seconds)]
    monkeypatch.setattr(sys, "argv", words)
    status = measure.main()
    lines = path.read_text(encoding="utf-8").splitlines()
    return status, [json.loads(line) for line in lines]


def test_everything_is_measured(measure, monkeypatch, tmp_path, capsys):
    status, figures = run(measure, monkeypatch, tmp_path, 600)
    assert "failed" not in capsys.readouterr().out
    assert status == 0
    ways = {figure["way"] for figure in figures}
    assert ways == {parts.BANDWIDTH, parts.HOST, parts.HOST_ARRAYS, parts.CALL, parts.GRAPH}
    for way in (parts.BANDWIDTH, parts.HOST, parts.CALL):
        own = [figure for figure in figures if figure["way"] == way]
        assert {figure["variant"] for figure in own} == set(VARIANTS)
        assert all(goals.OURS in figure["us"] for figure in own)
    assert all(np.all(np.array(t) > 0) for figure in figures for t in figure["us"].values())
    peers = {goals.fastest_peer(figure) for figure in figures if figure["way"] == parts.CALL}
    assert peers <= {"torch", "torch.compile", None}  # None: no library has the op
    assert {found.goal.split(",")[0] for found in goals.findings(figures)} >= {
        "of the copy",
        "no library faster",
        "a call costs the host 5 us",
        "NumPy arrays: of the copies",
    }
    assert report.NOTHING not in report.bandwidth(figures)


def test_it_stops_when_its_time_is_up(measure, monkeypatch, tmp_path):
    status, figures = run(measure, monkeypatch, tmp_path, 0)
    assert status == 2
    # one of each part all the same
    assert len(figures) == 4
