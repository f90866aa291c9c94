"""Whether a model computes what its class and its configuration say, and nothing else.

The engine knows the families of models, not the code of a model. So the modules of a model are
compared with those that its class makes of its configuration, without memory for weights.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from tensor_ops_torch.decoding.errors import UnsupportedModelError
from tensor_ops_torch.decoding.parts import Part
from tensor_ops_torch.modules.classes import base_of, has_other_forward
from tensor_ops_torch.pytorch import torch

__all__ = ["check_structure", "own_model", "quantization_of"]

_NOT_COMPARED = ("training", "gradient_checkpointing")


def own_model(model: object, *, of_weights: bool = True) -> Any:
    """Return the model of transformers in what the caller holds.

    Parameters
    ----------
    model : object
        The model, or what `torch.compile` or peft has made around it.
    of_weights : bool, optional
        Whether its weights have to be all that there is of it.

    Raises
    ------
    TypeError
        If it is none.
    UnsupportedModelError
        If peft puts something before its prompts.
    """
    found: Any = getattr(model, "_orig_mod", model)  # of torch.compile
    peft: Any = sys.modules.get("peft")
    if peft is not None and isinstance(found, peft.PeftModel):
        if of_weights and found.active_peft_config.is_prompt_learning:
            kind = found.active_peft_config.peft_type
            raise UnsupportedModelError(
                f"adapters of the kind {getattr(kind, 'value', kind)} change the prompt and not "
                "the weights, and cannot be merged; pass the model without the adapter"
            )
        found = found.get_base_model()
    transformers: Any = sys.modules.get("transformers")
    is_model = transformers is not None and isinstance(found, transformers.PreTrainedModel)
    if not is_model or not found.can_generate():
        raise TypeError(
            "decoder() takes a model of transformers that generates, as "
            "AutoModelForCausalLM.from_pretrained() returns, got "
            f"{type(model).__module__}.{type(model).__name__}"
        )
    return found


def quantization_of(model: Any) -> str | None:
    """Return by what a model was quantized, if it was.

    Its weights may be plain numbers all the same, as those of a GGUF file are to transformers.
    """
    settings = getattr(model.config, "quantization_config", None)
    method = settings.get("quant_method") if isinstance(settings, dict) else settings
    method = getattr(method, "quant_method", method)
    return None if settings is None else str(getattr(method, "value", method))


def check_structure(model: Any, parts: list[Part]) -> None:
    """Raise an UnsupportedModelError unless a model is as its class makes it.

    Parameters
    ----------
    model : PreTrainedModel
    parts : list of Part
        Its modules.
    """
    found = {part.name: part for part in parts}
    expected = dict(_empty_copy(model).named_modules())
    for name, module in expected.items():
        if name not in found:
            raise UnsupportedModelError(f"the model has no {name}, which its configuration has")
        _check_module(found[name], module)
    for name, part in found.items():
        if name not in expected:
            raise UnsupportedModelError(
                f"the model has {name}, a {type(part.module).__name__}, which "
                f"{type(model).__name__} does not have; remove it"
            )


def _empty_copy(model: Any) -> torch.nn.Module:
    """Return what the class of a model makes of its configuration, without memory."""
    config = copy.deepcopy(model.config)
    vars(config).pop("quantization_config", None)
    with torch.device("meta"):
        made: torch.nn.Module = type(model)._from_config(config, attn_implementation="eager")
    return made


def _check_module(part: Part, expected: torch.nn.Module) -> None:
    module, name = part.module, part.name or "the model"
    kind = base_of(module) or type(module)  # swap_modules computes the same
    if kind is not type(expected):
        raise UnsupportedModelError(
            f"{name} is a {kind.__module__}.{kind.__name__}, expected the "
            f"{type(expected).__module__}.{type(expected).__name__} of the model's class"
        )
    if (names := _parameters(module)) != (wanted := _parameters(expected)):
        raise UnsupportedModelError(
            f"{name} has {', '.join(names) or 'no weights'}; expected "
            f"{', '.join(wanted) or 'none'}, as the configuration says"
        )
    if has_other_forward(module):
        raise UnsupportedModelError(
            f"{name} has a forward of its own, set on the module, which a kernel would not run"
        )
    for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
        origin = getattr(hook, "__module__", None) or type(hook).__module__
        # transformers records outputs by hooks of its own.
        if origin.partition(".")[0] != "transformers":
            raise UnsupportedModelError(
                f"{name} has a forward hook, {getattr(hook, '__qualname__', hook)}, which a kernel "
                "would not run; remove it"
            )
    if part.name:
        _check_settings(module, expected, name)


def _parameters(module: torch.nn.Module) -> list[str]:
    return [name for name, value in module._parameters.items() if value is not None]


def _check_settings(module: torch.nn.Module, expected: torch.nn.Module, name: str) -> None:
    """Raise an UnsupportedModelError if a number of a module is not what the configuration says."""
    for key, value in vars(expected).items():
        if key.startswith("_") or key in _NOT_COMPARED or not isinstance(value, (int, float)):
            continue
        found = vars(module).get(key)
        if found != value:
            raise UnsupportedModelError(
                f"{name} has {key} {found!r}, expected {value!r} as the configuration says"
            )
