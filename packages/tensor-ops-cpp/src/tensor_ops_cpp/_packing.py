"""How weights are packed for decode programs, so that packed weights can be kept in a file."""

from typing import Any

import numpy as np

from tensor_ops_cpp import _native
from tensor_ops_cpp._decode import program_text, require_programs

__all__ = ["has_bfloat16_products", "packed_checksum", "packed_layout", "program_note"]


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

    Notes
    -----
    `compile_program` takes such weights as ``packed``: the arrays that ``packed`` of an executable
    of the program returns, one behind the other in a vector of uint8, from an address that is a
    multiple of 64, such as in a mapped file. It is read in place, and no matrix is looked up in
    the tensors. The caller sees to it that this text and the weights are the same.

    With ``packs_in_steps=True`` weights in files that are mapped for reading alone, by `mmap`, are
    packed little by little, and others at once: after each step but the first one 128 MiB, or more
    if that takes less time than the step took. A number is the bytes that each worker packs after
    a step instead. Until ``is_packed`` of the executable, steps read the files, which must not
    change. By default all are packed at once. The results are the same bits.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.packed_layout("[]")
    Traceback (most recent call last):
    ValueError: program must be an object, got an array
    """
    return _native.packed_layout(program_text("packed_layout", program))


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
    require_programs("packed_checksum")
    return f"{_native.packed_checksum(packed, num_workers):016x}"


def has_bfloat16_products() -> bool:
    """Say whether weights in bfloat16 are multiplied faster by activations in bfloat16 here.

    Where they are, a prompt takes half the time or less with ``"bfloat16"`` as ``activations`` of
    `compile_program`. Elsewhere activations are rounded too, and multiplied in float32.

    Returns
    -------
    bool
        True if the level in use has products with tiles (AMX), or has instructions for bfloat16 on
        a processor on which they are faster than those for float32, which on Intel's they are not;
        False too where decode programs were not compiled in.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.has_bfloat16_products() in (True, False)
    True
    """
    if not _native.runs_programs:
        return False
    return bool(_native.decode_has_bfloat16_products())


def program_note() -> str | None:
    """Return what `explain` of a kernel says of the products of decode programs.

    Returns
    -------
    str or None
        The level in use with what products use beside it, as ``decode_products`` of
        :func:`get_optimization_info` has it, and whether they use the tiles of AMX; None where no
        program can run.

    Examples
    --------
    >>> import tensor_ops_cpp
    >>> tensor_ops_cpp.program_note().partition(" use ")[0]
    'products'
    """
    if not _native.runs_programs:
        return None
    products, tiles = _native.decode_products()
    return f"products use {products}; tiles (AMX): {tiles}" if products else None
