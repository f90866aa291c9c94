"""Whether an executor takes options, which is asked before there is a program to compile."""

import functools
from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.program import Limits, Tensor
from tensor_ops_decode.program.builder import Builder

__all__ = ["refused_options"]


def refused_options(
    module: Any, options: Mapping[str, object], num_workers: int | None
) -> str | None:
    """Return why an executor does not take these options, None if it does or does not tell.

    Its ``program_memory`` checks what ``compile_program`` does, and reads no weights.

    Raises
    ------
    TypeError
        If an option is of a type that no executor takes.
    """
    asks = options or num_workers is not None
    if not (asks and hasattr(module, "program_memory")):
        return None
    try:
        module.program_memory(_smallest_program(), num_workers=num_workers, options=options)
    except ValueError as error:
        return str(error)
    except RuntimeError:
        pass  # about the program, which is none of the caller's
    return None


@functools.cache
def _smallest_program() -> str:
    builder = Builder(Limits(1, 1, 1, 1, 1, 1))
    table = builder.tensor("table", Tensor("f32", (1, 1), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    last = builder.add("select", {"x": x}, output="last")
    chosen = builder.add("argmax", {"x": last}, output="next")
    return builder.program([chosen]).to_json()
