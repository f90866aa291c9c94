"""Programs of a model's decode step: ``docs/guides/decode_programs.md`` is their contract."""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from . import _native

__all__ = [
    "compile_program",
    "program_memory",
    "program_text",
    "require_programs",
    "supports_program",
]

_WITHOUT = (
    f"{__package__} was built without decode programs (TENSOR_OPS_DECODE=OFF); build it again "
    "without that option"
)
# Arguments that `compile_program` takes in addition where weights are packed.
_PACKING: set[str] = {"packed", "packs_in_steps"} if hasattr(_native, "packed_layout") else set()


def supports_program(program: str) -> str | None:
    """Say why a program cannot run here.

    Parameters
    ----------
    program : str
        JSON.

    Returns
    -------
    str or None
        The reason, or None when it can.

    Examples
    --------
    >>> supports_program("[]")
    'program must be an object, got an array'
    """
    if not _native.runs_programs:
        return _WITHOUT
    return _native.supports_program(program_text("supports_program", program))


def program_memory(
    program: str,
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    ranks: Any = None,
) -> dict[str, int]:
    """Return the bytes of what an executable of a program would take, by what takes them.

    Nothing is allocated, and no weights are read.

    Parameters
    ----------
    program : str
        JSON.
    num_workers, options, ranks
        As `compile_program` takes them.

    Returns
    -------
    dict of str to int
        Equal to ``memory`` of the executable, if weights are packed for it.

    Raises
    ------
    TypeError, ValueError
        If an argument, or what the program says, is wrong.
    MemoryError
        If the size of something is more than any memory.
    RuntimeError
        If there is no device that can be used, or decode programs were not compiled in.

    Examples
    --------
    >>> program_memory("[]")
    Traceback (most recent call last):
    ValueError: program must be an object, got an array
    """
    text = program_text("program_memory", program)
    _require("program_memory", "options", options, (Mapping, NoneType), "a mapping or None")
    return _native.program_memory(text, num_workers, options, ranks)


def compile_program(
    program: str,
    tensors: Mapping[str, Any],
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    ranks: Any = None,
    **packing: Any,
) -> "_native.Executable":
    """Make a program ready to run: load its weights, take its memory and start its workers.

    Parameters
    ----------
    program : str
        JSON.
    tensors : mapping of str to array
        By name, C-contiguous arrays in host memory: of NumPy, which may be read-only, or of a
        library with DLPack. They hold the bytes of the tensor's type, or numbers of its dtype.
    num_workers : int, optional
        Threads of ``cpp``, `get_num_threads` by default; blocks of ``cuda``, one for each
        multiprocessor by default, which the device has to run all at once.
    options : mapping, optional
        ``activations``: what the inputs of products with integer weights are rounded to:
        ``"int8x2"``, two 8-bit numbers for each, is the default, and ``"float32"`` rounds nothing.
        ``cpp`` has ``"int8"`` too, and ``"bfloat16"``, which is the default but beside bf16
        weights, where it rounds to bfloat16; ``cuda`` rounds to three terms of bfloat16 there, by
        default. The other options of ``cuda`` are ``use_cutlass_kernel``, whether products are
        those of tensor cores, which is the default, or of CUDA cores in float32; and ``stream``,
        the handle of the stream on which steps run, such as ``cuda_stream`` of a stream of PyTorch.
        It has to outlive the executable, which has one of its own by default.
    progress : callable, optional
        Called with the bytes of weights that are loaded, and of all.
    ranks : RankGroup of tensor_ops_decode, optional
        The ranks that run the shards of the program together, each of which compiles its own, and
        runs the same steps; without it, there is one. If an exchange of values among them fails,
        the executable runs no more steps.
    **packing
        ``packed`` and ``packs_in_steps``, where the backend has `packed_layout`, which says more.

    Returns
    -------
    Executable
        With ``arrays``, in host memory, ``run``, ``run_steps``, ``first_nan``, ``profile``,
        ``read_bandwidth``, ``memory``, ``num_workers``, ``options`` and ``close``; where weights
        are packed, also with ``packed``, ``packed_size``, ``is_packed`` and ``hold_workers``.

    Raises
    ------
    TypeError, ValueError
        If the program, a tensor or an option is wrong; the error names which.
    MemoryError
        If there is not as much memory as it says that the program needs.
    RuntimeError
        If there is no device that can run the program, or decode programs were not compiled in.

    Examples
    --------
    >>> compile_program("[]", {})
    Traceback (most recent call last):
    ValueError: program must be an object, got an array
    """
    where = "compile_program"
    text = program_text(where, program)
    if unknown := sorted(packing.keys() - _PACKING):
        raise TypeError(f"{where}() got an unexpected keyword argument {unknown[0]!r}")
    _require(where, "options", options, (Mapping, NoneType), "a mapping or None")
    _require(where, "tensors", tensors, Mapping, "a mapping of names")
    _require(where, "progress", progress, (Callable, NoneType), "callable")
    return _native.compile_program(text, tensors, num_workers, options, progress, ranks, **packing)


def program_text(where: str, program: Any) -> bytes:
    """Return a program in UTF-8, which the native reader checks, as soon as it can run."""
    require_programs(where)
    _require(where, "program", program, (str, bytes), "a str of JSON")
    return program.encode(errors="surrogatepass") if isinstance(program, str) else program


def require_programs(where: str) -> None:
    """Raise a NotImplementedError where decode programs were not compiled in."""
    if not _native.runs_programs:
        raise NotImplementedError(f"{where}: {_WITHOUT}")


def _require(where: str, name: str, given: object, types: Any, expected: str) -> None:
    if not isinstance(given, types):
        raise TypeError(f"{where}: {name} must be {expected}, got {type(given).__name__}")
