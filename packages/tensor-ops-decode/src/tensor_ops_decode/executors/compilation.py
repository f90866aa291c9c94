"""How a program becomes an executable: its tensors are looked up, its weights packed or mapped."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tensor_ops import BackendError
from tensor_ops_decode.executors.memory_plan import PlannedProgram
from tensor_ops_decode.executors.packed_file import PACKED, PackedFile
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.weights import Weights

__all__ = ["compile_program"]


def compile_program(
    planned: PlannedProgram,
    attached: Mapping[str, Array],
    weights: Weights | None = None,
    cache: Path | None = None,
    *,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Any, str | None]:
    """Return the executable of a program, and what was done about a file of packed weights.

    The latter is in words, or None without such a file.

    Parameters
    ----------
    planned : PlannedProgram
    attached : mapping of str to ndarray
    weights : Weights, optional
        Of the model.
    cache : Path, optional
        The folder in which packed weights are kept.
    options
        As the backend's ``compile_program`` takes them.
    progress : callable, optional
        Called with the bytes of weights that are packed, and of all. Without it, and without
        `cache`, the weights of a file are packed while the first steps run, where the backend can.

    Raises
    ------
    ValueError
        If weights are to be kept by a backend that does not pack them.
    ConfigError
        If others can write the file in which they were kept.
    """
    program, module, workers = planned.program, planned.executor.module, planned.num_workers
    among = {"ranks": planned.ranks} if planned.ranks.world_size > 1 else {}

    def made(arrays: TensorArrays, **packed: Any) -> Any:
        try:
            return module.compile_program(
                planned.text,
                arrays,
                num_workers=workers,
                options=options,
                progress=progress,
                **among,
                **packed,
            )
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise
            # Of native code, where the system does not give what was asked for.
            raise BackendError(str(error)) from error

    if cache is None or weights is None:
        arrays = TensorArrays(program, attached, weights)
        # Arrays of the caller may change once this has returned; a model's files may not.
        is_file = weights is not None and weights.files and not attached
        if is_file and progress is None and hasattr(module, "packed_layout"):
            return made(arrays, packs_in_steps=True), None
        return made(arrays), None
    if not hasattr(module, "packed_layout"):
        raise ValueError(
            f"the backend {planned.executor.backend!r} does not pack weights; leave cache= out, or "
            "choose another backend"
        )
    checksum = partial(module.packed_checksum, num_workers=workers)
    file = PackedFile(cache, weights, program, module.packed_layout(planned.text), checksum)
    found = file.open()
    if found is not None:
        packed = found.pop(PACKED)
        arrays = TensorArrays(program, attached, weights, tables=found)
        return made(arrays, packed=packed), f"mapped from {file.path}"
    arrays = TensorArrays(program, attached, weights)
    executable = made(arrays)
    problem = file.write(executable, arrays)
    return executable, problem or f"written to {file.path}"
