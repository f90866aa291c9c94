"""Facts that the ranks of a kernel must have alike, so that all run the same steps."""

import hashlib
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zlib import crc32

from tensor_ops_decode.kernel.arguments import KernelSettings, by_argument
from tensor_ops_decode.kernel.opening import KernelModel
from tensor_ops_decode.program import Program
from tensor_ops_decode.ranks.communicator import Facts
from tensor_ops_decode.weights import Weights

__all__ = ["beginnings_of", "facts_of_ranks"]

_BEGINNING = 64  # bytes of each tensor of a file
_FILE = re.compile(r'"file": "((?:[^"\\]|\\.)*)"')


def facts_of_ranks(model: KernelModel, settings: KernelSettings) -> Facts:
    """Return what all ranks of a kernel must have alike, by its name in messages.

    The limits of a model are the least of all ranks, so that they are alike where the arguments are
    not.
    """
    planned = model.planned
    module, limits = planned.executor.module, by_argument(planned.program.limits)
    facts = {
        "version of tensor-ops-decode": _version("tensor-ops-decode"),
        "backend": planned.executor.backend,
        "version of the backend": str(getattr(module, "__version__", None)),
        "options of the backend": repr(sorted(model.options.items())),
        "limits": ", ".join(f"{name} {value}" for name, value in limits.items()),
        "max_seq_length": str(settings.max_seq_length),
        "max_num_pages": str(settings.max_num_pages),
        "end tokens": repr(sorted(model.facts.end_tokens)),
        "program": _digest_of(planned.whole, is_by_rank=planned.is_by_rank),
    }
    if model.weights is not None:
        facts["weights in the model's files"] = beginnings_of(model.weights, planned.whole)
        facts["quantization_config"] = model.weights.quantization
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # the sources are used as they are
        return "unknown"


def _digest_of(program: Program, *, is_by_rank: bool) -> str:
    """Return a digest of a program, for which it does not matter in which folder its files are."""
    text = str([node.kind for node in program.nodes]) if is_by_rank else program.to_json()
    text = _FILE.sub(lambda found: Path(found[1]).name, text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def beginnings_of(weights: Weights, program: Program) -> str:
    """Return a checksum of the first bytes of each tensor, of which no more are read."""
    sources = (tensor.source.get("tensor") for tensor in program.tensors.values())
    found = 0
    for name in sorted({name for name in sources if isinstance(name, str)}):
        found = crc32(weights.beginning(name, _BEGINNING), found)
    return f"{found:08x}"
