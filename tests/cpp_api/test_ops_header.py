"""C++ programs call the ops as Python does: by methods with the same parameters."""

import inspect
import re

import pytest
from cpp_programs import ROOT

import tensor_ops

HEADER = ROOT / "native/include/tensor_ops/backend/ops.h"
OPS = ROOT / "packages/tensor-ops-cpp/native/ops"
KINDS = {"const ConstArray&": "array", "const Array&": "output", "double": "number", "bool": "flag"}


@pytest.fixture(scope="module")
def methods():
    """By its name, the parameters of each method as pairs of type and name, with the defaults."""
    text = HEADER.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100
    found = {}
    for name, written in re.findall(r"\n  void (\w+)\(([^)]*)\) const", text):
        parameters = [" ".join(each.split()) for each in written.split(",")]
        assert parameters.pop() == "CallOptions options = {}"
        pattern = r"(const \w+&|\w+) (\w+)(?: = (.*))?"
        found[name] = [re.fullmatch(pattern, each).groups() for each in parameters]
    return found


def test_every_op_of_the_backend_has_a_method(methods):
    assert sorted(methods) == sorted(path.stem for path in OPS.glob("[!_]*.cpp"))
    assert {*methods} <= {*tensor_ops.list_ops()}


@pytest.mark.parametrize("name", sorted(path.stem for path in OPS.glob("[!_]*.cpp")))
def test_methods_take_what_the_ops_of_python_take(methods, name):
    signature = inspect.signature(getattr(tensor_ops, name)).parameters
    settings = [name for name in signature if name not in ("out", "backend")]
    types = [KINDS.get(kind, "choice") for kind, _, _ in methods[name]]
    given = [each for each in methods[name] if each[0] != "const Array&"]
    assert [each for _, each, _ in given] == settings
    # Outputs come after the inputs and before what has a default value.
    order = ["array", "output", "number", "choice", "flag"]
    assert types == sorted(types, key=order.index)
    for kind, parameter, default in given:
        of_python = signature[parameter].default
        if kind == "double":
            assert float(default) == of_python
        elif kind == "bool":
            assert (default, of_python) == ("false", False)
        elif default is not None:
            assert default == f"{kind}::k{of_python.capitalize()}"
