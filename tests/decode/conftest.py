"""Which backends the tests of decode programs run on, and a model that many of them run."""

import io
import sys
from types import SimpleNamespace

import pytest

from tensor_ops import backends, get_available_backends
from tensor_ops.__main__ import main
from tensor_ops_decode import PersistentKernel, reference


def pytest_generate_tests(metafunc):
    required = metafunc.config.getoption("--require-backend")
    found = dict.fromkeys([*get_available_backends(), *required])
    chosen = metafunc.config.getoption("--backend") or list(found)
    for name in {"backend", "executor"} & set(metafunc.fixturenames):
        metafunc.parametrize(name, chosen, indirect=True)


@pytest.fixture
def backend(request):
    """The name of an available backend that runs programs."""
    return _available(request, request.param)


@pytest.fixture
def cpp(request):
    """The name of the C++ backend, if it is available."""
    return _available(request, "cpp")


@pytest.fixture
def executor(request):
    """The module that runs the programs of a backend."""
    return _module_of(_available(request, request.param))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small model of random weights, whose tokens are bytes."""
    from byte_models import save_model  # which needs PyTorch

    folder = tmp_path_factory.mktemp("model")
    save_model(folder)
    return folder


@pytest.fixture(scope="module")
def bfloat16_folder(tmp_path_factory):
    """That model with its weights rounded to bfloat16."""
    from byte_models import save_model

    folder = tmp_path_factory.mktemp("bfloat16")
    save_model(folder, dtype="bfloat16")
    return folder


@pytest.fixture
def runnable(request, folder, backend):
    """The folder of that model, in bfloat16 where the backend runs no matrices of float32."""
    with PersistentKernel(model=folder, backend="python") as kernel:
        text = kernel.program.to_json()
    runs = _module_of(backend).supports_program(text) is None
    return folder if runs else request.getfixturevalue("bfloat16_folder")


@pytest.fixture
def cache(tmp_path):
    """An empty folder for packed weights."""
    made = tmp_path / "cache"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    """That model in a folder for programs without Python."""
    from exported_models import export

    return export(folder, tmp_path_factory.mktemp("exported") / "model")


@pytest.fixture(scope="session")
def driver_program(made_once):
    """The program that runs commands on exported models in C++."""
    from exported_models import compiled

    def make(path):
        compiled("c++", f"{path.name}.cpp", path.parent, "-std=c++17")

    return made_once("driver of decoders", "driver", make)


@pytest.fixture(scope="session")
def driver(driver_program):
    """Runs that program; for tests that have `cpp` too."""
    from exported_models import Driver

    return Driver(driver_program)


def _module_of(name):
    return reference if name == "python" else backends.load(name).module


def _available(request, name):
    found = backends.load(name)
    reason = found.reason
    if reason is None and name != "python" and not found.capabilities.runs_programs:
        reason = "it runs no programs"
    if reason is not None:
        message = f"{name}: {reason}"
        if name in request.config.getoption("--require-backend"):
            pytest.fail(message)
        pytest.skip(message)
    return name


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process: another one would start for half a second."""

    def run(*words, stdin=""):
        source = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        monkeypatch.setattr(sys, "stdin", source)
        capsys.readouterr()  # what was printed where the model was made
        try:
            status = main(list(map(str, words)))
        except SystemExit as wrong_usage:
            status = wrong_usage.code
        stdout, stderr = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=stdout, stderr=stderr)

    return run
