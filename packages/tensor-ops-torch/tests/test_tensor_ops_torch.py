"""What the package names is there, is documented, and its examples print what they say."""

import doctest
import importlib
import pkgutil
import sys
import warnings

import pytest

import tensor_ops_torch
from tensor_ops_torch import core, decoding

PACKAGES = (core, decoding)
MODULES = [
    *(
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ),
    *(package.__name__ for package in PACKAGES),
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
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


@pytest.mark.parametrize("name", tensor_ops_torch.__all__)
def test_the_package_gives_what_it_names(name):
    thing = getattr(tensor_ops_torch, name)
    module = sys.modules[getattr(thing, "__module__", None) or "tensor_ops_torch"]
    assert thing is getattr(module, name)
    assert name in dir(tensor_ops_torch)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'Sillu'"):
        tensor_ops_torch.Sillu  # noqa: B018
