"""A machine without any configuration, for every test of this package."""

import shutil
import sys
import types

import pytest

from tensor_ops import backends, config
from tensor_ops.config import location, state
from tensor_ops.config.location import ENV_CONFIG
from tensor_ops.op import OPS


@pytest.fixture(autouse=True)
def config_file(monkeypatch, tmp_path):
    """The file that would be in use, in a folder that is there; it is not there itself."""
    for name in (ENV_CONFIG, config.ENV_FORCE, config.ENV_PREFERRED, config.ENV_PRIORITY):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "xdg"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    state.forget()
    monkeypatch.setattr(location, "absolute_paths", {})
    path = tmp_path / "prefix" / "etc" / "tensor-ops" / "backend.json"
    path.parent.mkdir(parents=True)
    yield path
    state.forget()


@pytest.fixture
def home(config_file, tmp_path):
    """An empty folder, the only place where a configuration could be."""
    shutil.rmtree(tmp_path / "prefix")
    return tmp_path


@pytest.fixture
def other(monkeypatch):
    """A second backend: NumPy's ops under another name, to be changed by a test."""
    module = types.ModuleType("other")
    module.supports = lambda op, dtype, device: None
    module.info = lambda: {"version": "1.0"}
    for name, op in OPS.items():
        setattr(module, name, op.numpy)
    monkeypatch.setitem(backends.loaded, "tpu", backends.Backend("tpu", module, None))
    return module
