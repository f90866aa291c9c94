"""Every backend name a user may write, what it stands for and how to get it."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tensor_ops.errors import ConfigError

__all__ = [
    "ALIASES",
    "AUTO",
    "AUTOMATIC",
    "CPU",
    "DEFAULT_PRIORITY",
    "DEVICE_KINDS",
    "FASTEST",
    "KNOWN",
    "LAST_ON_CPUS",
    "LAST_RESORT",
    "KnownBackend",
    "did_you_mean",
    "install_command",
    "not_a_name",
    "resolve",
    "split",
]

AUTO = "auto"
FASTEST = "fastest"
# Values that stand where a backend is preferred or named, without being backends.
AUTOMATIC = (AUTO, FASTEST)
LAST_RESORT = "python"
DEFAULT_PRIORITY = ("cuda", "opencl", "cpp", LAST_RESORT)
# The backend for devices of any kind. On CPUs the others are faster for small arrays: see `steps`
# of `tensor_ops.config.selection`.
LAST_ON_CPUS = "opencl"
# Kinds of devices that may follow a backend's name and a colon, as in "opencl:gpu": the backend
# must run on that kind.
DEVICE_KINDS = ("gpu", "cpu", "accelerator")
# The device of host arrays.
CPU = "cpu"


class KnownBackend(NamedTuple):
    """A backend name of the guides, whether or not anything installed provides it."""

    name: str
    display_name: str
    # The extra of tensor-ops that provides it, or what serves its hardware. NumPy needs none.
    extra: str
    # The package that serves its hardware, in words; empty for a backend of ours.
    hint: str = ""
    # The backend whose package that is; empty for a backend of ours.
    served_by: str = ""
    # Advice where that package is installed.
    instead: str = ""
    # Whether it runs whole programs, which is known where it is not installed too.
    runs_programs: bool = False

    @property
    def module(self) -> str | None:
        """The module of a backend of ours, None for a name that another backend serves."""
        return None if self.served_by else f"tensor_ops_{self.name}"


def _known(
    name: str, display_name: str, extra: str, hint: str = "", instead: str = ""
) -> KnownBackend:
    served_by = "" if extra == name else extra
    return KnownBackend(name, display_name, extra, hint, served_by, instead or f"use {extra!r}")


_TENSORS = "call the operators of tensor_ops_torch on tensors that are there"


KNOWN = {
    known.name: known
    for known in (
        _known("cuda", "NVIDIA CUDA", "cuda")._replace(runs_programs=True),
        _known("opencl", "OpenCL", "opencl"),
        _known("cpp", "C++ (SIMD, threads)", "cpp")._replace(runs_programs=True),
        KnownBackend(LAST_RESORT, "Python (NumPy)", "", runs_programs=True),
        _known("torch", "PyTorch", "torch"),
        _known(
            "mps", "Apple Metal (MPS)", "torch", "Apple GPUs are reached through PyTorch", _TENSORS
        ),
        _known("rocm", "AMD ROCm", "opencl", "AMD GPUs are reached through OpenCL"),
        _known("tpu", "Google TPU", "torch", "TPUs are reached through PyTorch/XLA", _TENSORS),
        _known(
            "nki",
            "AWS Neuron (NKI)",
            "torch",
            "Neuron devices are reached through PyTorch",
            _TENSORS,
        ),
        _known("triton", "OpenAI Triton", "cuda", "NVIDIA GPUs are served by the cuda backend"),
        _known("cudnn", "NVIDIA cuDNN", "cuda", "NVIDIA GPUs are served by the cuda backend"),
        _known("mkl", "Intel MKL", "cpp", "Intel CPUs are served by the cpp backend"),
        _known("mkldnn", "Intel oneDNN", "cpp", "Intel CPUs are served by the cpp backend"),
    )
}

ALIASES = {"numpy": "python", "cpu": "cpp", "openmp": "cpp"}

# Other names of hardware and its interfaces, with the backends to suggest for them. By spelling
# alone, "gpu" would be taken for "tpu".
_MEANT = {
    word: tuple(meant.split())
    for words, meant in (
        ("amd", "opencl:gpu cpp"),
        ("apple metal", "mps"),
        ("c++ cxx native openblas simd", "cpp"),
        ("cl", "opencl"),
        ("cupy nvidia", "cuda"),
        ("directml dml hip oneapi radeon sycl vulkan xpu", "opencl:gpu"),
        ("gpu", "cuda opencl:gpu"),
        ("intel", "cpp opencl:gpu"),
        ("np", "numpy"),
        ("npu", ""),
        ("xla", "tpu"),
    )
    for word in words.split()
}


def split(name: str) -> tuple[str, str]:
    """Return a backend's name without the kind of device, and the kind, which may be empty.

    Examples
    --------
    >>> split("opencl:gpu"), split("cpp")
    (('opencl', 'gpu'), ('cpp', ''))
    """
    backend, _, kind = name.partition(":")
    return backend, kind


def resolve(name: str, installed: Collection[str]) -> str:
    """Return the backend that `name` stands for.

    Parameters
    ----------
    name : str
        A backend name, one of its aliases, or the name of an installed plug-in; a colon and a kind
        of device may follow.
    installed : collection of str
        The names that installed distributions provide.

    Returns
    -------
    str
        The backend's own name, with the kind of device if there is one; ``cpu`` is ``cpp`` where
        that is installed, else ``python``.

    Raises
    ------
    ConfigError
        If nothing has that name; the message gives the nearest one.
    TypeError
        If `name` is not a string.
    """
    if not isinstance(name, str):
        raise not_a_name(name)
    if ":" not in name:
        return _backend(name, installed)
    backend, kind = split(name)
    target = _backend(backend, installed)
    if kind not in DEVICE_KINDS:
        hint = did_you_mean(kind, DEVICE_KINDS)
        raise ConfigError(
            f"unknown kind of device {kind!r} in {name!r}; {hint}"
            f"Kinds of device: {', '.join(DEVICE_KINDS)}"
        )
    return f"{target}:{kind}"


def _backend(name: str, installed: Collection[str]) -> str:
    if name == "cpu" and "cpp" not in installed:
        return LAST_RESORT
    target = ALIASES.get(name, name)
    if target in KNOWN or target in installed:
        return target
    choices = sorted({*KNOWN, *ALIASES, *installed})
    if name in AUTOMATIC:
        raise ConfigError(f"{name!r} is not a backend; name one of {', '.join(choices)}")
    hint = did_you_mean(name, [*choices, *AUTOMATIC], _MEANT)
    raise ConfigError(f"unknown backend {name!r}; {hint}Known backends: {', '.join(choices)}")


def did_you_mean(
    name: str, choices: Iterable[str], meant: Mapping[str, tuple[str, ...]] | None = None
) -> str:
    """Return a question naming the choice nearest to `name`, or nothing if none is near.

    Where `meant` has the name, in small letters, the question names what stands there.

    Examples
    --------
    >>> did_you_mean("cudda", ["cuda", "cpu"])
    "did you mean 'cuda'? "
    >>> did_you_mean("GPU", ["cuda", "cpu"], {"gpu": ("auto", "cuda")})
    "did you mean 'auto' or 'cuda'? "
    """
    # Imported here because only errors need it.
    from difflib import get_close_matches

    written = name.strip().lower()
    by_lower = {choice.lower(): choice for choice in choices}
    if written not in by_lower and meant is not None and written in meant:
        near = list(meant[written])
    else:
        near = [by_lower[each] for each in get_close_matches(written, by_lower, n=1)]
    if not near:
        return ""
    *others, last = map(repr, near)
    return f"did you mean {', '.join(others)} or {last}? " if others else f"did you mean {last}? "


def not_a_name(value: object) -> TypeError:
    """Return the error for something that stands where a backend's name is expected."""
    return TypeError(f"a backend's name must be a string, got {type(value).__name__} {value!r}")


def install_command(name: str) -> str | None:
    """Return the command that provides a known backend, None for a plug-in's name."""
    # Imported here because only what is missing needs it.
    from tensor_ops.backends import installed

    known = KNOWN.get(split(name)[0])
    return installed.command(known.extra) if known else None
