"""A peer that misbehaves, and records that were never measured."""

import pytest

from comparison.cases import Case
from comparison.driver import FLOOR
from comparison.record import Record

MISBEHAVING = '''
"""A peer whose process dies in silu, hangs in gelu, fails in softmax, and is right in rms_norm."""

import os
import time

from peers import UnsupportedError, Way

LABEL = "misbehaving"
PACKAGES = ()
HAS = ("silu", "gelu:tanh", "softmax", "rms_norm", "rope")


def start(threads):
    print("noise on stdout")


def ways(case, values, out):
    if case.variant == "silu":
        os.abort()
    if case.variant == "gelu:tanh":
        time.sleep(60)
    if case.variant == "softmax":
        raise ArithmeticError("lost in /some/folder/of/mine/file.py")
    if case.variant == "rope":
        raise UnsupportedError("no rope")
    return {"slow": Way(lambda: values["x"]), "": Way(lambda: values["x"])}
'''


@pytest.fixture
def misbehaving(tmp_path, monkeypatch):
    """The name of a peer that only this test has."""
    extra = tmp_path / "extra" / "peers"
    extra.mkdir(parents=True)
    (extra / "misbehaving.py").write_text(MISBEHAVING, encoding="utf-8")
    # every new interpreter looks for peers in that folder as well
    site = tmp_path / "sitecustomize.py"
    site.write_text(f"import peers\npeers.__path__.append({str(extra)!r})\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "misbehaving"


@pytest.fixture
def record():
    return Record({"rounds": 7})


def _content(times, *, unsupported=None):
    """Return what a record of these cells would hold: {(variant, dtype, shape, mode): {...}}."""
    made = Record({"rounds": 7})
    for (variant, dtype, shape, mode), entries in times.items():
        case = Case(variant, dtype, shape, 2, mode)
        made.add_cell(
            case, {name: {"calls": 1, "seconds": rounds} for name, rounds in entries.items()}
        )
        for entry in entries:
            if entry.partition(" ")[0] != FLOOR:
                made.add_error(
                    case, entry, {"error": 1.0, "of_row": 1e-7, "within": True, "problem": None}
                )
    made.content["peers"] = {
        name: {"label": name} for name in ("tensor_ops_cpp", "numpy", "torch", FLOOR)
    }
    made.content["unsupported"] = unsupported or {}
    return made.content


@pytest.fixture
def content():
    """A function from times to the content of a record."""
    return _content
