"""Fixtures of the tests of swapped modules."""

import sys
from pathlib import Path

import pytest
import torch

import tensor_ops
from tensor_ops_torch.modules import swap

# pytest's importlib mode does not put this folder, which has `lookalikes`, on the path.
sys.path.append(str(Path(__file__).parent))


def pytest_generate_tests(metafunc):
    """Run the tests of `lookalikes` for each case of the file that imports them."""
    for argument, table in (("lookalike_case", "CASES"), ("other_words", "OPS")):
        if argument in metafunc.fixturenames:
            cases = getattr(metafunc.module, table)
            # The scope puts the tests of a case side by side, which share what is slow.
            metafunc.parametrize(argument, cases.values(), ids=cases, scope="module")


@pytest.fixture(autouse=True)
def kept_sources(monkeypatch):
    """Compile the file of a test once, not at each swap of a module that is written there."""
    monkeypatch.setattr(swap, "forget_sources", lambda: None)


@pytest.fixture(autouse=True)
def named_backend():
    """Name a backend, so that its ops run for few elements with gradients, too."""
    with tensor_ops.use_backend("cpp"):
        yield


@pytest.fixture
def one_thread():
    """Many threads take longer than one for the few numbers of these tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def model():
    from small_models import make_model

    return make_model()


@pytest.fixture
def x():
    return torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def calls(monkeypatch):
    """Which operators run, by name."""
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "tensor_ops":
                seen.append(func._schema.name.removeprefix("tensor_ops::"))
            return func(*args, **(kwargs or {}))

    def run(function, *args):
        seen.clear()
        with Mode():
            function(*args)
        return list(seen)

    return run
