"""What this process may use of the processor and the memory."""

from __future__ import annotations

from typing import NamedTuple

from tensor_ops.extension import machine

__all__ = ["CPUFacts", "allowed_memory", "cpu_facts"]


class CPUFacts(NamedTuple):
    """The processor as this process sees it."""

    # What the processor calls itself.
    name: str
    # The highest instruction-set level that it has of those that tensor_ops_cpp knows, such as
    # "x86-64-v4"; None if tensor_ops_cpp cannot be used.
    isa: str | None
    # How many logical processors this process may use.
    cores: int
    # How many bytes of memory this process may use; 0 if the system does not say.
    memory: int


def cpu_facts() -> CPUFacts:
    """Return the facts of this processor."""
    name, isa = of_tensor_ops_cpp()
    known = name or machine.cpu_name() or machine.processor()["architecture"] or "CPU"
    return CPUFacts(known, isa, machine.usable_cpus(), allowed_memory())


def allowed_memory() -> int:
    """Return the bytes of memory that this process may use; 0 if the system does not say."""
    found = machine.usable_memory()
    if found is None:
        try:
            import tensor_ops_cpp
        except ImportError:
            return 0
        found = tensor_ops_cpp.info()["max_memory"]
    return int(found or 0)


def of_tensor_ops_cpp() -> tuple[str | None, str | None]:
    try:
        import tensor_ops_cpp
    except ImportError:
        return None, None
    levels = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
    return tensor_ops_cpp.info()["device_name"], levels[-1] if levels else None
