"""What the package names is there, is documented, and its examples print what they say."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import warnings

import pytest

import tensor_ops_devices

PACKAGE = tensor_ops_devices.__name__
MODULES = [PACKAGE]
MODULES += [each.name for each in pkgutil.walk_packages(tensor_ops_devices.__path__, f"{PACKAGE}.")]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if name == f"{PACKAGE}.devices.session":
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failed, _ = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_public_names_exist_and_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for public in getattr(module, "__all__", ()):
        thing = getattr(module, public)
        if callable(thing):
            assert thing.__doc__, public


@pytest.mark.parametrize("name", tensor_ops_devices.__all__)
def test_the_package_gives_what_it_names(name):
    thing = getattr(tensor_ops_devices, name)
    assert thing is getattr(sys.modules[thing.__module__], name)
    assert name in dir(tensor_ops_devices)


@pytest.mark.parametrize(
    "name",
    [each for each in tensor_ops_devices.__all__ if re.match("configure|resolve|.+_session", each)],
)
def test_functions_of_devices_and_providers_have_examples(name):
    assert ">>> " in getattr(tensor_ops_devices, name).__doc__


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'NVidiaBackend'"):
        tensor_ops_devices.NVidiaBackend  # noqa: B018


def test_the_backends_are_imported_when_they_are_asked_for():
    code = "import sys, tensor_ops_devices; print([n for n in sys.modules if 'devices.b' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
