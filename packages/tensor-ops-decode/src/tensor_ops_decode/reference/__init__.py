"""The executor of the backend ``python``, which runs what nodes mean in NumPy."""

from tensor_ops_decode.reference.driver import (
    ReferenceExecutable,
    compile_program,
    program_memory,
    supports_program,
)

__all__ = ["ReferenceExecutable", "compile_program", "program_memory", "supports_program"]
