"""How a program becomes an executable: its tensors are looked up, its weights packed or mapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tensor_ops_decode.executors.choice import Executor
from tensor_ops_decode.executors.packed_file import PackedFile
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program
from tensor_ops_decode.weights import Weights

__all__ = ["Compilation", "compile_program"]


@dataclass(frozen=True)
class Compilation:
    """An executable, and what was done about a file of packed weights, in words or None."""

    executable: Any
    packed_file: str | None


def compile_program(
    executor: Executor,
    program: Program,
    text: str,
    attached: Mapping[str, Array],
    weights: Weights | None = None,
    cache: Path | None = None,
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Compilation:
    """Make a program ready to run.

    Parameters
    ----------
    executor : Executor
    program : Program
    text : str
        The same as JSON.
    attached : mapping of str to ndarray
    weights : Weights, optional
        The files of the model.
    cache : Path, optional
        The folder in which packed weights are kept.
    num_workers, options, progress
        As the backend's ``compile_program`` takes them.

    Raises
    ------
    ValueError
        If weights are to be kept by a backend that does not pack them.
    ConfigError
        If others can write the file in which they were kept.
    """

    def report(done: int, total: int) -> None:
        if weights is not None:  # what the executor has packed, it does not read again
            weights.release_memory()
        if progress is not None:
            progress(done, total)

    def made(arrays: TensorArrays, **packed: Any) -> Any:
        return executor.module.compile_program(
            text, arrays, num_workers=num_workers, options=options, progress=report, **packed
        )

    if cache is None or weights is None:
        return Compilation(made(TensorArrays(program, attached, weights)), None)
    if not hasattr(executor.module, "packed_layout"):
        raise ValueError(
            f"the backend {executor.backend!r} does not pack weights; leave cache= out, or choose "
            "another backend"
        )
    checksum = partial(executor.module.packed_checksum, num_workers=num_workers)
    file = PackedFile(cache, weights, program, executor.module.packed_layout(text), checksum)
    found = file.open()
    if found is not None:
        arrays = TensorArrays(program, attached, weights, found.tables)
        return Compilation(made(arrays, packed=found.packed), f"mapped from {file.path}")
    arrays = TensorArrays(program, attached, weights)
    executable = made(arrays)
    problem = file.write(executable, arrays)
    return Compilation(executable, problem or f"written to {file.path}")
