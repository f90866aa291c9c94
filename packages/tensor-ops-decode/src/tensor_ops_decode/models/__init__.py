"""The families of models, one file each: what a file of the family says, as a `Decoder`."""

from __future__ import annotations

from tensor_ops_decode.models import gemma, llama, phi3, qwen
from tensor_ops_decode.models.decoder import Decoder
from tensor_ops_decode.models.settings import Settings
from tensor_ops_decode.weights import FileFormatError, Weights

__all__ = ["FAMILIES", "decoder_of"]

FAMILIES = (*llama.FAMILIES, *qwen.FAMILIES, *phi3.FAMILIES, *gemma.FAMILIES)

# What makes a model one that no family describes, whatever its architecture is called.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "expert_count")
_MODALITIES = ("vision_config", "audio_config")


def decoder_of(files: Weights) -> Decoder:
    """Return what the program of a model is made from.

    Raises
    ------
    FileFormatError
        If no family knows its architecture, or what the file says about it cannot be right.
    """
    architecture = files.metadata.get("general.architecture")
    if architecture is not None:
        prefix = f"{architecture}."
        values = {
            key.removeprefix(prefix): files.metadata[key]
            for key in files.metadata
            if key.startswith(prefix)
        }
        settings = Settings(files.path, values)
        _refuse(settings)
        for family in FAMILIES:
            if architecture == family.gguf:
                return family.from_gguf(files, settings)
        known = sorted({family.gguf for family in FAMILIES})
    else:
        names = files.metadata.get("architectures")
        architecture = names[0] if isinstance(names, list) and names else None
        settings = Settings(f"{files.path}/config.json", files.metadata)
        _refuse(settings)
        for family in FAMILIES:
            if architecture == family.hugging_face:
                return family.from_hugging_face(files, settings)
        known = sorted(family.hugging_face for family in FAMILIES)
    raise FileFormatError(
        f"{files.path}: unknown architecture {architecture!r}; the known ones are "
        f"{', '.join(known)}"
    )


def _refuse(settings: Settings) -> None:
    """Raise a FileFormatError for what the architecture does not tell."""
    values = settings.values
    for name in _EXPERTS:
        if values.get(name):
            raise FileFormatError(
                f"{settings.where}: {name} is {values[name]!r}; mixtures of experts are not "
                "supported"
            )
    quantization = values.get("quantization_config")
    if quantization:
        method = settings.section("quantization_config").values.get("quant_method")
        raise FileFormatError(
            f"{settings.where}: weights quantised by {method!r} are not supported; use the "
            "model's GGUF file, or the folder that it was quantised from"
        )
