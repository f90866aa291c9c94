"""Every backend name a user may write, what it stands for and how to get it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tensor_ops.errors import ConfigError

__all__ = [
    "ALIASES",
    "AUTO",
    "DEFAULT_PRIORITY",
    "FLOOR",
    "KNOWN",
    "KnownBackend",
    "did_you_mean",
    "install_command",
    "resolve",
]

AUTO = "auto"
FLOOR = "python"
DEFAULT_PRIORITY = ("cuda", "opencl", "cpp", FLOOR)


@dataclass(frozen=True)
class KnownBackend:
    """A backend name of the guides, whether or not anything installed provides it."""

    name: str
    display_name: str
    install: str
    hint: str = ""


def _known(name: str, display_name: str, extra: str, hint: str = "") -> KnownBackend:
    return KnownBackend(name, display_name, f"pip install 'tensor-ops[{extra}]'", hint)


KNOWN = {
    known.name: known
    for known in (
        _known("cuda", "NVIDIA CUDA", "cuda"),
        _known("opencl", "OpenCL", "opencl"),
        _known("cpp", "C++ (SIMD, OpenMP)", "cpp"),
        KnownBackend(FLOOR, "Python (NumPy)", "pip install tensor-ops"),
        _known("torch", "PyTorch", "torch", "PyTorch's own kernels are not a backend yet"),
        _known("mps", "Apple Metal (MPS)", "torch", "Apple GPUs are reached through PyTorch"),
        _known("rocm", "AMD ROCm", "opencl", "AMD GPUs are reached through OpenCL"),
        _known("tpu", "Google TPU", "torch", "TPUs are reached through PyTorch/XLA"),
        _known("nki", "AWS Neuron (NKI)", "torch", "Neuron devices are reached through PyTorch"),
        _known("triton", "OpenAI Triton", "cuda", "NVIDIA GPUs are served by the cuda backend"),
        _known("cudnn", "NVIDIA cuDNN", "cuda", "NVIDIA GPUs are served by the cuda backend"),
        _known("mkl", "Intel MKL", "cpp", "Intel CPUs are served by the cpp backend"),
        _known("mkldnn", "Intel oneDNN", "cpp", "Intel CPUs are served by the cpp backend"),
    )
}

ALIASES = {"numpy": "python", "cpu": "cpp", "openmp": "cpp"}


def resolve(name: str, installed: Collection[str]) -> str:
    """Return the backend that `name` stands for.

    Parameters
    ----------
    name : str
        A backend name, one of its aliases, or the name of an installed plug-in.
    installed : collection of str
        The names that installed distributions provide.

    Returns
    -------
    str
        The backend's own name; ``cpu`` is ``cpp`` where that is installed, else ``python``.

    Raises
    ------
    ConfigError
        If nothing has that name; the message gives the nearest one.
    """
    if name == "cpu" and "cpp" not in installed:
        return FLOOR
    target = ALIASES.get(name, name)
    if target in KNOWN or target in installed:
        return target
    choices = sorted({*KNOWN, *ALIASES, *installed})
    hint = did_you_mean(name, choices)
    raise ConfigError(f"unknown backend {name!r}; {hint}Known backends: {', '.join(choices)}")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return a question naming the choice nearest to `name`, or nothing if none is near."""
    # Imported here because only errors need it.
    from difflib import get_close_matches

    near = get_close_matches(name, list(choices), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def install_command(name: str) -> str | None:
    """Return the command that provides a known backend, None for a plug-in's name."""
    known = KNOWN.get(name)
    return known.install if known else None
