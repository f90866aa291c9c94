"""Facts of the CPU that the detector finds."""

import os
import sys

import pytest

from tensor_ops_devices.hardware.detector import HardwareType, probe
from tensor_ops_devices.hardware.profile import GB

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_the_facts_are_those_of_tensor_ops_cpp_and_the_system():
    tensor_ops_cpp = pytest.importorskip("tensor_ops_cpp")
    profile = probe(HardwareType.CPU)
    assert profile.device_name == tensor_ops_cpp.info()["device_name"]
    assert profile.isa == tensor_ops_cpp.get_optimization_info()["cpu_levels"][-1]
    assert 1 <= profile.compute_units <= os.cpu_count()
    assert 0 < profile.total_memory_gb * GB <= MEMORY


def test_without_tensor_ops_cpp_the_system_names_the_processor(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensor_ops_cpp", None)
    profile = probe(HardwareType.CPU)
    assert profile.device_name
    assert profile.isa is None
