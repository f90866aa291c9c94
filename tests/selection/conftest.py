"""Settings of this process, fake backends in it, and Python processes with their own settings."""

import json
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

import tensor_ops
from tensor_ops import backends, entry_points, use_backend
from tensor_ops.config import tuning_table


class Settings:
    """The configuration file and the environment of one test."""

    def __init__(self, directory, environ):
        self.directory = directory
        self.file = directory / "backend.json"
        self.environ = environ
        for name in [name for name in environ if name.startswith("TENSOR_OPS_")]:
            del environ[name]
        environ["XDG_CACHE_HOME"] = str(directory / "cache")
        self.write()
        self.environment(CONFIG=str(self.file))

    def write(self, text=None, **content):
        """Replace the file by a text, or by these keys."""
        self.file.write_text(json.dumps(content) if text is None else text, encoding="utf-8")

    def environment(self, **variables):
        """Set each variable ``TENSOR_OPS_<name>``; None unsets it."""
        for name, value in variables.items():
            self.environ.pop(f"TENSOR_OPS_{name}", None)
            if value is not None:
                self.environ[f"TENSOR_OPS_{name}"] = value


class Processes(Settings):
    """New Python processes with these settings."""

    def run(self, code, *options, executable=sys.executable, **settings):
        return subprocess.run(
            [executable, *options, "-c", code],
            env=self.environ,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **settings,
        )

    def output(self, code, *options, executable=sys.executable):
        """Run code that succeeds and warns of nothing, and return what it prints."""
        done = self.run(code, *options, executable=executable)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    def error(self, code, *options):
        """Run code that ends with an exception, and return the exception's text."""
        done = self.run(code, *options)
        assert done.returncode == 1, done.stderr
        return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def processes(tmp_path):
    return Processes(tmp_path, dict(os.environ))


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """This process's settings; `reload_config` puts them into force, the end takes them back."""
    before = dict(os.environ)
    own = Settings(tmp_path, os.environ)
    # The backends that this process has imported stay out of the test, and its own out of others.
    monkeypatch.setattr(backends, "loaded", {})
    tensor_ops.set_default_backend(None)
    tensor_ops.reload_config()
    yield own
    os.environ.clear()
    os.environ.update(before)
    monkeypatch.undo()
    tensor_ops.set_default_backend(None)
    tensor_ops.reload_config()


@pytest.fixture
def install(settings, monkeypatch):
    """Install a fake backend: its module, under an entry point of a distribution on sys.path.

    A real one of that name is hidden. Its silu returns the backend's name.
    """
    monkeypatch.syspath_prepend(str(settings.directory))

    def install(name, *, dtypes=("float32",), available=True, **attributes):
        def probe():
            return {"available": available, "reason": f"no {name} device", "devices": []}

        def supports(op, dtype, device):
            return None if dtype in dtypes and device == "cpu" else f"no {dtype} on {device}"

        module = ModuleType(f"fake_{name}")
        module.API_VERSION = 1
        module.probe = probe
        module.info = lambda: {"display_name": f"Fake {name}", "device_name": "a fake"}
        module.supports = supports
        module.silu = lambda x, *, out=None: name
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        # A distribution hides one of the same name that is later on sys.path.
        installed = entry_points.named("tensor_ops.backends").get(name)
        own = entry_points.distribution_of(installed[0]) if installed else f"fake-{name}"
        metadata = settings.directory / f"{own.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {own}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(
            f"[tensor_ops.backends]\n{name} = {module.__name__}\n"
        )
        tensor_ops.reload_config()
        return module

    return install


@pytest.fixture
def who():
    """Return the name of the backend that runs silu, by default in float32."""

    def who(dtype="float32", **options):
        result = tensor_ops.silu(np.ones(3, dtype), **options)
        return result if isinstance(result, str) else "python"

    return who


@pytest.fixture
def fakes(settings, install):
    """Two fakes that lead the priority, one without a device that does not."""
    install("alpha")
    install("beta", dtypes=("float32", "float16"))
    install("hollow", available=False)
    settings.write(backend_priority=["alpha", "beta", "python"])
    tensor_ops.reload_config()


@pytest.fixture
def write(settings):
    """Write a table of these entries, as if it had been measured here."""

    def write(*entries, machine=None, **changes):
        names = {name for each in entries for name in each.seconds}
        facts = {name: tuning_table.backend_facts(name) for name in names}
        path = tuning_table.default_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        machine = machine or tuning_table.machine_facts()
        tuning_table.write(path, tuning_table.Table(machine, facts | changes, entries))
        tensor_ops.reload_config()
        return path

    return write


@pytest.fixture
def measured(settings, install):
    """Backends that tables have times of; gamma has no device, outside no place in the order."""
    for name in ("alpha", "beta", "gamma", "outside"):
        install(name, available=name != "gamma")
    settings.write(backend_priority=["alpha", "beta", "gamma"])
    tensor_ops.reload_config()


@pytest.fixture
def of_size():
    """Return the backend that runs silu on so many elements."""

    def of_size(size, dtype="float32", **options):
        result = tensor_ops.silu(np.ones(size, dtype), **options)
        return result if isinstance(result, str) else "python"

    return of_size


@pytest.fixture(params=["file", "environment", "default", "context", "call"])
def ask(request, settings):
    """Ask for the fastest backend on one level; returns the options of a call."""
    if request.param == "file":
        settings.write(preferred_backend="fastest", backend_priority=["alpha", "beta", "gamma"])
    if request.param == "environment":
        settings.environment(BACKEND="fastest")
    tensor_ops.reload_config()
    if request.param == "default":
        tensor_ops.set_default_backend("fastest")
    if request.param == "context":
        with use_backend("fastest"):
            yield {}
        return
    yield {"backend": "fastest"} if request.param == "call" else {}
