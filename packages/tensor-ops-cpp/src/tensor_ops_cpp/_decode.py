"""Programs of a model's decode step: ``docs/guides/decode_programs.md`` is their contract."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensor_ops_cpp import _native
from tensor_ops_cpp._program_arguments import check_compile, encoded, options_dict

__all__ = [
    "compile_program",
    "has_bfloat16_products",
    "packed_checksum",
    "packed_layout",
    "program_memory",
    "supports_program",
]

WITHOUT = (
    "tensor_ops_cpp was built without decode programs (TENSOR_OPS_DECODE=OFF); build it again "
    "without that option"
)


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
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.supports_program("[]")
    'program must be an object, got an array'
    """
    if not _native.runs_programs:
        return WITHOUT
    return _native.supports_program(encoded("supports_program", program))


def program_memory(
    program: str,
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    ranks: Any = None,
) -> dict[str, int]:
    """Return the bytes of what an executable of a program takes, without making one.

    It reads no weights.

    Parameters
    ----------
    program : str
        JSON.
    num_workers, options, ranks
        As `compile_program` takes them.

    Returns
    -------
    dict of str to int
        Equal to ``memory`` of the executable, if its weights are packed for it.

    Raises
    ------
    TypeError, ValueError
        If the program or another argument is wrong.
    MemoryError
        If the size of something is more than any memory.
    NotImplementedError
        If decode programs were not compiled in.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.program_memory("[]")
    Traceback (most recent call last):
    ValueError: program must be an object, got an array
    """
    where = "program_memory"
    _require_programs(where)
    return _native.program_memory(
        encoded(where, program), num_workers, options_dict(where, options), ranks
    )


def packed_layout(program: str) -> str:
    """Say how the weights of a program are packed.

    Parameters
    ----------
    program : str
        JSON.

    Returns
    -------
    str
        Packed weights that were kept can be used where this text is the same, on every CPU of the
        same byte order and with any number of threads. It says nothing of what the weights are.

    Raises
    ------
    ValueError
        If the program is wrong.
    NotImplementedError
        If decode programs were not compiled in.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.packed_layout("[]")
    Traceback (most recent call last):
    ValueError: program must be an object, got an array
    """
    _require_programs("packed_layout")
    return _native.packed_layout(encoded("packed_layout", program))


def packed_checksum(
    packed: np.ndarray[Any, np.dtype[np.uint8]], *, num_workers: int | None = None
) -> str:
    """Return a number by which damage to bytes that were kept is found.

    It finds every change of one byte, and all but about one in 2^32 of other changes. It is no
    protection from somebody who may write the number too.

    Parameters
    ----------
    packed : ndarray of uint8
        One contiguous vector.
    num_workers : int, optional
        How many threads read it, by default what :func:`get_num_threads` returns. The number does
        not depend on it.

    Returns
    -------
    str
        16 hexadecimal digits. Those of other layouts may be others for the same bytes.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong.
    NotImplementedError
        If decode programs were not compiled in.

    Examples
    --------
    >>> import numpy as np
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.packed_checksum(np.arange(256, dtype=np.uint8))
    '72953bea95f0968e'
    """
    _require_programs("packed_checksum")
    return f"{_native.packed_checksum(packed, num_workers):016x}"


def has_bfloat16_products() -> bool:
    """Say whether products of weights with activations in bfloat16 are instructions here.

    Where they are, a prompt takes about half the time with ``"bfloat16"`` as ``activations`` of
    `compile_program`. Elsewhere activations are rounded too, and multiplied in float32.

    Returns
    -------
    bool
        True if the processor has the instructions, and the level in use may use them; False too
        where decode programs were not compiled in.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.has_bfloat16_products() in (True, False)
    True
    """
    if not _native.runs_programs:
        return False
    variants = (name.split("+") for name in _native.decode_product_variants())
    return any(level == _native.level() and "bf16" in more for level, *more in variants)


def compile_program(
    program: str,
    tensors: Mapping[str, Any],
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    packed: np.ndarray[Any, np.dtype[np.uint8]] | None = None,
    packs_in_steps: bool | int = False,
    ranks: Any = None,
) -> "_native.Executable":
    """Make a program ready to run: pack its weights, take its memory and start its threads.

    Parameters
    ----------
    program : str
        JSON.
    tensors : mapping of str to array
        C-contiguous NumPy arrays, read-only ones too, or arrays that export DLPack, by name: the
        bytes of the tensor's type, or numbers of its dtype.
    num_workers : int, optional
        Threads; `get_num_threads` by default.
    options : mapping, optional
        ``activations``: what the inputs of products with integer weights are rounded to:
        ``"int8x2"`` (the default: two 8-bit numbers for each), ``"int8"`` or ``"float32"``; with
        ``"bfloat16"`` it is the default, and beside bf16 weights they are rounded to bfloat16.
    progress : callable, optional
        Called with the bytes of weights that are packed, and of all.
    packed : ndarray of uint8, optional
        The arrays that ``packed`` of an executable of this program returns, one behind the other,
        from an address that is a multiple of 64, such as in a mapped file. It is read in place, and
        no matrix is looked up in `tensors`. The caller sees to it that `packed_layout` and the
        weights are the same.
    packs_in_steps : bool or int, optional
        Whether weights in files that are mapped for reading alone, by `mmap`, are packed little by
        little, and others at once: after each step but the first one 128 MiB, or more if that
        takes less time than the step took. A number is the bytes that each worker packs after a
        step instead. Until ``is_packed`` of the executable, steps read the files, which must not
        change. By default all are packed at once. The results are the same bits.
    ranks : RankGroup of tensor_ops_decode, optional
        The ranks that run the shards of the program together, each of which compiles its own, and
        runs the same steps; without it, there is one. If an exchange of values among them fails,
        the executable runs no more steps.

    Returns
    -------
    Executable
        With ``arrays``, ``run``, ``run_steps``, ``profile``, ``read_bandwidth``, ``hold_workers``,
        ``packed``, ``packed_size``, ``is_packed``, ``memory``, ``num_workers``, ``options`` and
        ``close``.

    Raises
    ------
    ValueError
        If the program, a tensor or an option is wrong; the error names which.
    MemoryError
        If there is not as much memory as it says that the program needs.
    NotImplementedError
        If decode programs were not compiled in.
    """
    where = "compile_program"
    _require_programs(where)
    check_compile(where, tensors, progress)
    return _native.compile_program(
        encoded(where, program),
        tensors,
        num_workers=num_workers,
        options=options_dict(where, options),
        progress=progress,
        packed=packed,
        packs_in_steps=bool(packs_in_steps),
        packed_per_step=0 if packs_in_steps is True else int(packs_in_steps),
        ranks=ranks,
    )


def _require_programs(where: str) -> None:
    if not _native.runs_programs:
        raise NotImplementedError(f"{where}: {WITHOUT}")
