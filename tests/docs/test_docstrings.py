"""The examples in docstrings print what they say, on every backend that is available."""

import doctest
import importlib
import pkgutil
import re

import pytest

import tensor_ops
from tensor_ops import backends

MODULES = ["tensor_ops"] + [
    module.name
    for module in pkgutil.walk_packages(tensor_ops.__path__, "tensor_ops.")
    if not module.name.startswith(("tensor_ops.__main__", "tensor_ops.ops."))
]
NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]\d+)?")


class Checker(doctest.OutputChecker):
    """White space does not count, and numbers agree to 1e-6: their last digit is the backend's."""

    def check_output(self, want, got, optionflags):
        if re.sub(r"\s", "", NUMBER.sub("#", want)) != re.sub(r"\s", "", NUMBER.sub("#", got)):
            return super().check_output(want, got, optionflags)
        pairs = zip(NUMBER.findall(want), NUMBER.findall(got), strict=True)
        return all(float(a) == pytest.approx(float(b), rel=1e-6, abs=1e-12) for a, b in pairs)


def examples(thing, name):
    return [test for test in doctest.DocTestFinder().find(thing, name) if test.examples]


def run(tests):
    runner = doctest.DocTestRunner(Checker())
    report = []
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
    return runner.tries


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    run(examples(importlib.import_module(name), name))


@pytest.mark.parametrize("backend", tensor_ops.get_available_backends(runs_programs=False))
@pytest.mark.parametrize("name", tensor_ops.list_ops())
def test_ops(name, backend):
    op = getattr(tensor_ops, name)
    assert op.__doc__
    if reason := backends.load(backend).module.supports(name, "float32", "cpu"):
        pytest.skip(f"{backend}: {reason}")
    with tensor_ops.use_backend(backend):
        assert run(examples(op, name)), f"{name} has no example"


@pytest.mark.parametrize("name", tensor_ops.__all__)
def test_every_public_name_is_documented(name):
    assert getattr(tensor_ops, name).__doc__
