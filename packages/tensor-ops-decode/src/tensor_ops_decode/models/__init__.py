"""The families of models, one file each: what a file of the family says, as a `Decoder`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from tensor_ops_decode.errors import ModelError
from tensor_ops_decode.models.decoder import Decoder

if TYPE_CHECKING:
    from tensor_ops_decode.weights import ModelFiles

__all__ = ["decoder_of"]

# Their modules declare ARCHITECTURES and a function decoder_of().
_FAMILIES = [
    import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
    if module.name not in ("decoder", "settings")
]


def decoder_of(files: ModelFiles) -> Decoder:
    """Return what the program of a model is made from.

    Raises
    ------
    ModelError
        If no family knows its architecture, or what the file says about it cannot be right.
    """
    for family in _FAMILIES:
        if files.architecture in family.ARCHITECTURES:
            decoder: Decoder = family.decoder_of(files)
            return decoder
    known = sorted(name for family in _FAMILIES for name in family.ARCHITECTURES)
    raise ModelError(
        f"{files.path}: unknown architecture {files.architecture!r}; the known ones are "
        f"{', '.join(known)}"
    )
