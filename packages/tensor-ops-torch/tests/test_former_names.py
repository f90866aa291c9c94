"""What tensor_ops_devices has is also where it was before: the same modules, the same objects."""

import importlib
import pickle
import pkgutil
import subprocess
import sys

import pytest

import tensor_ops_devices
import tensor_ops_torch

ROOMS = ("backends", "checkpoint", "devices", "hardware", "validation")
MODULES = [
    each.name.removeprefix("tensor_ops_devices.")
    for each in pkgutil.walk_packages(tensor_ops_devices.__path__, "tensor_ops_devices.")
    if each.name.split(".")[1] in ROOMS
]


def test_modules_are_the_same():
    # In a process of its own, where the former names are imported first.
    code = f"""
from importlib import import_module
for name in {MODULES}:
    former = import_module(f"tensor_ops_torch.{{name}}")
    assert former is import_module(f"tensor_ops_devices.{{name}}"), name
    assert former.__spec__.name == former.__name__ == f"tensor_ops_devices.{{name}}"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", tensor_ops_devices.__all__)
def test_a_public_name_is_the_same(name):
    assert getattr(tensor_ops_torch, name) is getattr(tensor_ops_devices, name)
    assert name in dir(tensor_ops_torch)


@pytest.mark.parametrize(
    ("former", "now"),
    [("config", "config"), ("hardware_detector", "detector")],
)
def test_the_paths_of_the_guide_have_the_same_objects(former, now):
    module = importlib.import_module(f"tensor_ops_torch.core.{former}")
    other = importlib.import_module(f"tensor_ops_devices.hardware.{now}")
    assert all(getattr(module, name) is getattr(other, name) for name in other.__all__)


def test_a_pickle_of_a_former_name_is_loaded():
    from tensor_ops_devices.backends.float8 import Float8Linear

    pickled = b"ctensor_ops_torch.backends.float8\nFloat8Linear\n."
    assert pickle.loads(pickled) is Float8Linear


def test_a_module_that_is_not_there():
    with pytest.raises(ModuleNotFoundError, match=r"tensor_ops_devices\.backends\.nvidea"):
        importlib.import_module("tensor_ops_torch.backends.nvidea")
