"""The processor, and the memory that this process may use of the machine's."""

from __future__ import annotations

from tensor_ops.extension import machine

__all__ = ["allowed_memory", "name_and_level"]


def name_and_level() -> tuple[str, str | None]:
    """Return the processor's own name, and its highest level that tensor_ops_cpp knows.

    That is an instruction-set level such as "x86-64-v4", None if tensor_ops_cpp cannot be used.
    """
    name, levels = None, []
    try:
        import tensor_ops_cpp
    except ImportError:
        pass
    else:
        name = tensor_ops_cpp.info()["device_name"]
        levels = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
    known = name or machine.cpu_name() or machine.processor()["architecture"] or "CPU"
    return known, levels[-1] if levels else None


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
