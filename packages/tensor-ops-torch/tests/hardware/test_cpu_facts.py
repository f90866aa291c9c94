"""What the detector says of the CPU."""

import os

import pytest

from tensor_ops_torch.hardware import cpu

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_the_facts_are_those_of_tensor_ops_cpp_and_the_system():
    tensor_ops_cpp = pytest.importorskip("tensor_ops_cpp")
    facts = cpu.cpu_facts()
    assert facts.name == tensor_ops_cpp.info()["device_name"]
    assert facts.isa == tensor_ops_cpp.get_optimization_info()["cpu_levels"][-1]
    assert 1 <= facts.cores <= os.cpu_count()
    assert 0 < facts.memory <= MEMORY


def test_without_tensor_ops_cpp_the_system_names_the_processor(monkeypatch):
    monkeypatch.setattr(cpu, "of_tensor_ops_cpp", lambda: (None, None))
    facts = cpu.cpu_facts()
    assert facts.name
    assert facts.isa is None
