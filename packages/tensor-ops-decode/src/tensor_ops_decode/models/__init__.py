"""The families of models, one file each: what a file of the family says, as a `Decoder`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["decoder_of"]

# Their modules declare ARCHITECTURES and a function decoder_of().
_FAMILIES = [
    import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
    if module.name not in ("decoder", "settings")
]


def decoder_of(files: Weights) -> Decoder:
    """Return what the program of a model is made from.

    Raises
    ------
    FileFormatError
        If no family knows its architecture, or what the file says about it cannot be right.
    """
    architecture = _architecture(files)
    for family in _FAMILIES:
        if architecture in family.ARCHITECTURES:
            decoder: Decoder = family.decoder_of(files)
            return decoder
    known = sorted(name for family in _FAMILIES for name in family.ARCHITECTURES)
    raise FileFormatError(
        f"{files.path}: unknown architecture {architecture!r}; the known ones are "
        f"{', '.join(known)}"
    )


def _architecture(files: Weights) -> object:
    """Return the name of the architecture, in a GGUF file or in config.json."""
    names = files.metadata.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    return files.metadata.get("general.architecture", first)
