"""Which backends the tests of decode programs run on."""

import pytest

from tensor_ops import backends
from tensor_ops_decode import reference


def pytest_generate_tests(metafunc):
    if "executor" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--backend") or ["python", "cpp"]
        metafunc.parametrize("executor", chosen, indirect=True)


@pytest.fixture
def executor(request):
    """The module of a backend that runs programs."""
    name = request.param
    if name == "python":
        return reference
    reason = backends.load(name).reason
    if reason is None and not backends.load(name).capabilities.runs_programs:
        reason = "it runs no programs"
    if reason is not None:
        message = f"{name}: {reason}"
        if name in request.config.getoption("--require-backend"):
            pytest.fail(message)
        pytest.skip(message)
    return backends.load(name).module
