"""The processors as which sessions run tests, and the queue of sessions."""

import importlib
import sys
import types

import pytest


class Session:
    """A session of nox, on a processor with some levels."""

    def __init__(self, *levels):
        self.levels = levels

    def run(self, *command, env=None, silent=False):
        return " ".join(self.levels) + "\n"


@pytest.fixture
def environments(monkeypatch):
    """The module, which needs nox for types only."""
    monkeypatch.setitem(sys.modules, "nox", types.SimpleNamespace(Session=Session))
    monkeypatch.delitem(sys.modules, "environments", raising=False)
    yield importlib.import_module("environments")
    sys.modules.pop("environments", None)


def test_only_lower_levels_than_the_processors_own_are_asked_for(environments):
    v2, v3, v4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"
    as_v2 = {
        "TENSOR_OPS_CPP_ISA": v2,
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    }
    as_v3 = {
        "TENSOR_OPS_CPP_ISA": v3,
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }
    assert environments.lesser_processors(Session(v2, v3, v4)) == [as_v2, as_v3]
    assert environments.lesser_processors(Session(v2, v3)) == [as_v2]
    assert environments.lesser_processors(Session(v2)) == []
    assert environments.lesser_processors(Session("neon")) == []


def test_all_kinds_below_the_processors_own_are_asked_for(environments):
    zen4 = "flags : sse4_1 avx avx2 avx512bw avx512_vnni avx512_bf16"
    found = environments.all_lesser_processors(zen4)
    levels = ["x86-64-v2"] * 2 + ["x86-64-v3"] + ["x86-64-v4"] * 2
    assert [each["TENSOR_OPS_CPP_ISA"] for each in found] == levels
    assert found[-1]["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_VNNI"
    assert found[2]["ATEN_CPU_CAPABILITY"] == "avx2"
    assert len(environments.all_lesser_processors(f"{zen4} avx_vnni")) == len(found) + 1
    assert environments.all_lesser_processors("Features : asimd") == []


def test_every_session_of_the_queue_runs_though_one_fails(environments, capsys):
    started = []

    class Sessions(Session):
        def run(self, *command, env, **options):
            started.append(command[-1])
            if command[-1] == "lint":
                raise ValueError("lint has failed")
            return f"{command[-1]} has passed"

    names = ["tests", "lint", "docs", "workflows"]
    with pytest.raises(ValueError, match="lint has failed"):
        environments.run_in_queue(Sessions(), names)
    assert sorted(started) == sorted(names)
    assert capsys.readouterr().out.count("has passed") == 3
