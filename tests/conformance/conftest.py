"""Which backends the suite runs on, what it demands of them, and the count of what ran."""

from collections import Counter

import hypothesis
import pytest

from tensor_ops import backends
from tensor_ops.ops import OPS

# Examples are derived from the test alone, so that a run in CI can be repeated exactly.
hypothesis.settings.register_profile(
    "ci",
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.register_profile(
    "nightly", hypothesis.settings.get_profile("ci"), max_examples=10_000, derandomize=False
)
hypothesis.settings.load_profile("ci")

BACKENDS = ["python", *backends.INSTALLED]
# Backends that are libraries with a C interface, and those that are packages of their own.
NATIVE = ("cpp", "cuda")
PACKAGES = ("cpp", "opencl", "cuda")


def pytest_generate_tests(metafunc):
    if "op" in metafunc.fixturenames:
        metafunc.parametrize("op", _ops(metafunc), ids=lambda op: op.name)
    for fixture in {"backend", "package"}.intersection(metafunc.fixturenames):
        options = metafunc.config
        required = options.getoption("--require-backend")
        chosen = options.getoption("--backend") or list(dict.fromkeys([*BACKENDS, *required]))
        metafunc.parametrize(fixture, chosen, indirect=True)
    if "dtype" in metafunc.fixturenames:
        metafunc.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])


@pytest.fixture
def backend(request):
    """The name of an available backend."""
    name = request.param
    reason = backends.load(name).reason
    if reason is not None:
        _absent(request.config, name, f"{name}: {reason}")
    return name


@pytest.fixture
def package(request):
    """The module of a backend that is a package of its own, whether it has a device or not."""
    module = pytest.importorskip(f"tensor_ops_{request.param}")
    op = getattr(request.node, "callspec", None) and request.node.callspec.params.get("op")
    if op is not None and may_lack(op, module):
        pytest.skip(f"{request.param} does not have {op.name}")
    return module


@pytest.fixture
def device(request, package):
    """Skip what needs a device of a package that has none here."""
    found = package.probe()
    if not found["available"]:
        _absent(request.config, package.info()["name"], found["reason"])


@pytest.fixture
def supported(request, backend, op):
    """Skip what the backend says it cannot do."""
    dtype = request.node.callspec.params.get("dtype", "float32")
    reason = backends.load(backend).module.supports(op.name, dtype, "cpu")
    if reason is not None:
        if may_lack(op, backends.load(backend).module):
            pytest.skip(f"{backend} does not have {op.name}")
        _absent(request.config, backend, f"{backend} does not support {op.name}: {reason}")


def may_lack(op, module):
    """Return whether an op is a derivative that a backend does not have, as none has to."""
    return op.derivative_of is not None and not hasattr(module, op.name)


def pytest_collection_modifyitems(config, items):
    """Ask no backend for a C interface, or a package of its own, that has none."""
    left_out = [
        item
        for item in items
        for fixture, parameter, names in (
            ("interface", "backend", NATIVE),
            ("package", "package", PACKAGES),
        )
        if {fixture, parameter} <= set(item.fixturenames)
        and item.callspec.params.get(parameter) not in names
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter):
    counts = {
        outcome: Counter(
            (report.backend, report.op)
            for report in terminalreporter.stats.get(outcome, [])
            if getattr(report, "backend", None) and (outcome == "skipped" or report.when == "call")
        )
        for outcome in ("passed", "failed", "skipped")
    }
    names = sorted({backend for count in counts.values() for backend, _ in count})
    if not names:
        return
    terminalreporter.section("conformance: passed / failed / skipped", sep="-")
    terminalreporter.write_line(f"{'op':14}" + "".join(f"{name:>20}" for name in names))
    for op in OPS:
        cells = (
            " / ".join(
                str(counts[outcome][name, op]) for outcome in ("passed", "failed", "skipped")
            )
            for name in names
        )
        terminalreporter.write_line(f"{op:14}" + "".join(f"{cell:>20}" for cell in cells))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    parameters = getattr(item, "callspec", None)
    if parameters is not None and "op" in parameters.params:
        report.op = parameters.params["op"].name
        report.backend = parameters.params.get("backend")
    return report


def _ops(metafunc):
    marker = metafunc.definition.get_closest_marker("ops")
    return [op for op in OPS.values() if marker is None or marker.kwargs["having"](op)]


def _absent(config, name, reason):
    if name in config.getoption("--require-backend"):
        pytest.fail(f"--require-backend={name}, but {reason}")
    pytest.skip(reason)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "ops(having): run only for the ops for which having(op) holds"
    )
