"""Programs of a model's decode step: ``docs/guides/decode_programs.md`` is their contract.

They run on the device that NumPy arrays are computed on.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tensor_ops_cuda import _native
from tensor_ops_cuda._program_arguments import check_compile, encoded, options_dict

__all__ = [
    "PROGRAM_NOTE",
    "compile_program",
    "program_memory",
    "program_memory_limit",
    "supports_program",
]

#: What `explain` of a kernel says of this executor.
PROGRAM_NOTE = (
    "no GPU has run decode programs yet, only an emulated device; nor is it known which products "
    "are faster, those with use_cutlass_kernel or those without"
)


def supports_program(program: str) -> str | None:
    """Say why a program cannot run on the device, which has to be of compute capability 8.0.

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
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.supports_program("[]")
    'program must be an object, got an array'
    """
    return _native.supports_program(encoded("supports_program", program))


def program_memory(
    program: str,
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    ranks: Any = None,
) -> dict[str, int]:
    """Return the bytes that an executable of a program would take, by what takes them.

    Nothing is allocated, and no weights are read.

    Parameters
    ----------
    program : str
        JSON.
    num_workers, options, ranks
        As for `compile_program`.

    Returns
    -------
    dict of str to int
        What ``memory`` of the executable would be.

    Raises
    ------
    TypeError, ValueError
        If an argument, or what the program says, is wrong.
    MemoryError
        If a size is beyond any memory.
    RuntimeError
        If there is no device that can be used.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.program_memory("[]")
    Traceback (most recent call last):
    ValueError: program must be an object, got an array
    """
    where = "program_memory"
    wanted = options_dict(where, options)
    return _native.program_memory(encoded(where, program), num_workers, wanted, ranks)


def program_memory_limit() -> int:
    """Return the bytes of the device's memory that nobody has taken.

    Raises
    ------
    RuntimeError
        If there is no device that can be used.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> 0 <= tensor_ops_cuda.program_memory_limit() <= tensor_ops_cuda.info()["max_memory"]
    True
    """
    return _native.program_memory_limit()


def compile_program(
    program: str,
    tensors: Mapping[str, Any],
    *,
    num_workers: int | None = None,
    options: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    ranks: Any = None,
) -> "_native.Executable":
    """Make a program ready to run: copy its weights to the device, and take its memory there.

    Parameters
    ----------
    program : str
        JSON.
    tensors : mapping of str to array
        By name, C-contiguous arrays in host memory: of NumPy, which may be read-only, or of a
        library with DLPack. They hold the bytes of the tensor's type, or numbers of its dtype, and
        are not needed afterwards.
    num_workers : int, optional
        Blocks of the kernel that computes a step; one for each multiprocessor by default. The
        device has to run them all at once.
    options : mapping, optional
        ``use_cutlass_kernel``: whether products are those of tensor cores, which is the default,
        or of CUDA cores in float32. ``activations`` says the same by what the inputs of products
        are rounded to: ``"int8x2"``, two 8-bit numbers for each beside integer weights, and three
        terms of bfloat16 beside weights in bfloat16; or ``"float32"``. ``stream``: the handle of
        the stream of the device on which steps run, such as ``cuda_stream`` of a stream of PyTorch;
        by default one of its own. It has to outlive the executable.
    progress : callable, optional
        Called with the bytes of weights that are on the device, and of all.
    ranks : RankGroup of tensor_ops_decode, optional
        The ranks that run the shards of the program together, each of which compiles its own, and
        runs the same steps; without it, there is one. If an exchange of values among them fails,
        the executable runs no more steps.

    Returns
    -------
    Executable
        With ``arrays``, in host memory, and ``run``, ``run_steps``, ``first_nan``, ``profile``,
        ``read_bandwidth``, ``memory``, ``num_workers``, ``options`` and ``close``.

    Raises
    ------
    TypeError, ValueError
        If the program, a tensor or an option is wrong; the error names which.
    MemoryError
        If the device has too little memory left.
    RuntimeError
        If there is no device that can run the program.

    Examples
    --------
    >>> import tensor_ops_cuda
    >>> tensor_ops_cuda.compile_program("{}", {}, options={"threads": 4})
    Traceback (most recent call last):
    ValueError: unknown option 'threads'; valid: activations, stream, use_cutlass_kernel
    """
    where = "compile_program"
    check_compile(where, tensors, progress)
    wanted, text = options_dict(where, options), encoded(where, program)
    return _native.compile_program(
        text, tensors, num_workers=num_workers, options=wanted, progress=progress, ranks=ranks
    )
