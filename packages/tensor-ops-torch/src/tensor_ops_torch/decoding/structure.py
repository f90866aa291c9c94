"""Checks of whether a model computes what its class and its configuration say, and nothing else.

The engine knows the families of models, not the code of a model. So the modules of a model are
compared with those that its class makes of its configuration, without memory for weights.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from tensor_ops_torch.decoding.errors import UnsupportedModelError
from tensor_ops_torch.decoding.named_modules import NamedModule, stored_buffers
from tensor_ops_torch.modules.classes import base_of, has_other_forward

__all__ = [
    "ExpectedModule",
    "check_structure",
    "code_outside_class",
    "configured_values",
    "difference",
    "is_rewritten",
    "other_value",
    "own_model",
    "plain_values",
    "quantization_of",
]

# Modules hold these beside what a step computes with.
_NOT_COMPARED = (
    "all_tied_weights_keys",
    "gradient_checkpointing",
    "kernel_config",
    "loss_type",
    "name_or_path",
    "padding_idx",
    "training",
)
# As of modules, of configurations; the tokens that begin and end a text are of calls.
_NOT_CONFIGURED = ("initializer_range", "use_cache")
_NOT_RUN = "which a kernel would not run"


@dataclass(frozen=True)
class ExpectedModule:
    """A module as the class of a model makes it of its configuration."""

    kind: type[torch.nn.Module]
    forward: Callable[..., Any]  # that of the class
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    settings: Mapping[str, Any]


def own_model(model: object, *, of_weights: bool = True) -> Any:
    """Return the model of transformers in what the caller holds, as torch.compile or peft made it.

    Raises TypeError if it is none, and UnsupportedModelError if peft puts something before its
    prompts where its weights have to be all that there is of it (`of_weights`).
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


def check_structure(model: Any, modules: list[NamedModule]) -> dict[str, ExpectedModule]:
    """Raise an UnsupportedModelError unless a model, of these modules, is as its class makes it.

    Returns the modules that `difference` expects, by their names.
    """
    found = {named.name: named.module for named in modules}
    made = _empty_copy(model)
    expected = {}
    for name, module in made.named_modules():
        if name not in found:
            raise UnsupportedModelError(f"the model has no {name}, which its configuration has")
        expected[name] = _expected(module, of_model=not name)
        problem = difference(name, found[name], expected[name], model.config)
        problem = problem or _other_buffer(name, found[name], module)
        if problem is not None:
            raise UnsupportedModelError(problem)
    for name, unknown in found.items():
        if name not in expected:
            raise UnsupportedModelError(
                f"the model has {name}, a {type(unknown).__name__}, which "
                f"{type(model).__name__} does not have; remove it"
            )
    if (problem := code_outside_class(model, dict(model.named_modules()))) is not None:
        raise UnsupportedModelError(f"{problem}; remove it")
    return expected


def difference(
    name: str, module: torch.nn.Module, expected: ExpectedModule, config: Any
) -> str | None:
    """Return in what a module is another one than its class makes, None if in nothing.

    `name` is empty for the model itself, whose configuration is `config`.
    """
    name = name or "the model"
    kind = base_of(module) or type(module)  # swap_modules computes the same
    if kind is not expected.kind:
        return (
            f"{name} is a {kind.__module__}.{kind.__name__}, expected the "
            f"{expected.kind.__module__}.{expected.kind.__name__} of the model's class"
        )
    if kind.forward is not expected.forward:
        return f"{name} is of a class whose forward was replaced, {_named(kind.forward)}"
    # Their order is another one where peft or PyTorch has parametrized one for a time.
    if {*(names := _parameters(module))} != {*expected.parameters}:
        return (
            f"{name} has {', '.join(names) or 'no weights'}; expected "
            f"{', '.join(expected.parameters) or 'none'}, as the configuration says"
        )
    own = vars(module)
    for key, value in expected.settings.items():
        if (found := own.get(key)) is not value and not _is_equal(found, value):
            return f"{name} has {key} {found!r}, expected {value!r} as the configuration says"
    held = own.get("config", config)
    if held is not config and (problem := other_value(held, configured_values(config))):
        return f"{name} has a configuration of its own, whose {problem}, as the model's says"
    return None


def code_outside_class(model: Any, modules: Mapping[str, torch.nn.Module]) -> str | None:
    """Return what a call of a model would run beside the code of its classes, None if nothing.

    `modules` are its modules, and those of adapters in them.
    """
    from torch.nn.modules import module as of_all_modules
    from transformers import GenerationMixin

    hooks = (
        *of_all_modules._global_forward_hooks.values(),
        *of_all_modules._global_forward_pre_hooks.values(),
    )
    if hooks:
        return f"all modules have a forward hook, {_named(hooks[0])}, {_NOT_RUN}"
    # Another `generate` decides on no step, and may be a decoder's.
    for name in vars(model).keys() & vars(GenerationMixin).keys() - {"generate"}:
        method = vars(model)[name]
        is_own = getattr(method, "__func__", None) is getattr(type(model), name)
        if not (is_own and method.__self__ is model):  # as peft puts it back
            return f"the model has a {name} of its own, set on it, {_NOT_RUN}"
    for name, module in modules.items():
        if "forward" in vars(module) and has_other_forward(module):
            return f"{name or 'the model'} has a forward of its own, set on the module, {_NOT_RUN}"
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            origin = getattr(hook, "__module__", None) or type(hook).__module__
            # transformers records outputs by hooks of its own.
            if origin.partition(".")[0] != "transformers":
                return f"{name or 'the model'} has a forward hook, {_named(hook)}, {_NOT_RUN}"
    return None


def configured_values(config: Any) -> dict[str, Any]:
    """Return the values of a configuration that decide what a step computes."""
    from transformers import PretrainedConfig

    of_all = vars(PretrainedConfig())
    return {
        key: value
        for key, value in plain_values(vars(config)).items()
        if key not in of_all
        and key not in _NOT_CONFIGURED
        and not key.endswith(("_token_id", "dropout"))
    }


def other_value(config: Any, expected: Mapping[str, Any]) -> str | None:
    """Return what of a configuration is not as expected."""
    fields = vars(config)
    for key, value in expected.items():
        if not _is_equal(fields.get(key), value):
            return f"{key} is {fields.get(key)!r}, expected {value!r}"
    return None


def plain_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return those fields that are numbers, text, or containers of them."""
    return {
        key: value for key, value in fields.items() if not key.startswith("_") and _is_plain(value)
    }


def is_rewritten(module: Any, buffer: str) -> bool:
    """Return whether each forward of a module writes a buffer anew before it reads it."""
    kind = getattr(module, "rope_type", None)
    if isinstance(kind, dict):  # of each type of layer
        kind = kind.get(buffer.partition("_inv_freq")[0])
    return kind == "longrope" and not buffer.endswith("original_inv_freq")


def _empty_copy(model: Any) -> torch.nn.Module:
    """Return what the class of a model makes of its configuration, without memory for weights."""
    config = copy.deepcopy(model.config)
    vars(config).pop("quantization_config", None)
    with torch.device("meta"):
        made: Any = type(model)._from_config(config, attn_implementation="eager")
    # Buffers have their values from where transformers has them when it opens a file.
    with torch.no_grad():
        for module in made.modules():
            for name, buffer in module.named_buffers(recurse=False):
                module._buffers[name] = torch.full_like(buffer, math.nan, device="cpu")
            if module._buffers:
                made._init_weights(module)
    found: torch.nn.Module = made
    return found


def _other_buffer(name: str, module: Any, expected: torch.nn.Module) -> str | None:
    """Return which buffer of a module has other values than the configuration gives."""
    for key, value in expected.named_buffers(recurse=False):
        found = module._buffers.get(key)
        is_computed = key not in stored_buffers(expected)
        if not is_computed or is_rewritten(module, key) or value.isnan().any():
            continue
        if found is None or found.shape != value.shape:
            return f"{name} has no {key} of shape {tuple(value.shape)}, which its class has"
        # A model that was converted as a whole has them in its dtype.
        close = 4 * torch.finfo(found.dtype).eps
        rounded = value.to(found.dtype).float()
        if not found.is_meta and not torch.allclose(
            found.detach().cpu().float(), rounded, rtol=close, atol=0
        ):
            return (
                f"{name} has other values of {key} than its configuration gives: change the "
                "configuration before the model is made, and give its dtype then"
            )
    return None


def _parameters(module: torch.nn.Module) -> tuple[str, ...]:
    return tuple(name for name, value in module._parameters.items() if value is not None)


def _expected(module: torch.nn.Module, *, of_model: bool) -> ExpectedModule:
    values = {} if of_model else plain_values(vars(module))
    settings = {
        key: value
        for key, value in values.items()
        if key not in _NOT_COMPARED and not key.endswith("dropout")  # which is for training
    }
    kind = type(module)
    buffers = tuple(module._buffers)
    return ExpectedModule(kind, kind.forward, _parameters(module), buffers, settings)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (int, float, str))


def _is_equal(found: Any, value: Any) -> bool:
    # A tensor may not answer whether it is equal.
    return not isinstance(found, torch.Tensor) and bool(found == value)


def _named(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", hook))
