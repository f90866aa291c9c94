"""The facts of a model that need no hardware: parameters, modules, and operators it calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["ModelFacts", "OperatorsSeen", "observe"]

# Packages whose modules call CUDA kernels of their own.
CUDA_ONLY = frozenset({"apex", "bitsandbytes", "flash_attn", "transformer_engine", "xformers"})
# optimize_for_inference has weights in a layout of oneDNN.
_CONSTANTS = ("prim::Constant", "prim::ConstantMKLDNNTensor")
_QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")


@dataclass(frozen=True)
class ModelFacts:
    """The parameters and modules of a model."""

    nbytes: int  # of parameters, buffers and constants, those that are shared counted once
    constant: int  # bytes of the constants, which TorchScript has in place of parameters
    trained: int  # bytes of parameters that require gradients; 0 in eval mode
    dtypes: dict[torch.dtype, str]  # from each to the first parameter or buffer that has it
    linears: dict[str, str | None]  # from each ``nn.Linear`` to why it cannot multiply float8
    # The names of modules.
    sparse: list[str]  # with sparse gradients
    cuda_only: list[str]  # of `CUDA_ONLY` packages
    quantized: list[str]  # of PyTorch's quantized kernels for CPUs
    fixed: list[str]  # of TorchScript with floating-point constants on the CPU
    lazy: str | None  # the first parameter or buffer whose shape a call of the model gives it
    is_eager_attention: bool  # of transformers, without ``scaled_dot_product_attention``

    @classmethod
    def of(cls, model: nn.Module) -> ModelFacts:
        """Return the facts of a model."""
        from tensor_ops_devices.backends.float8 import why_not

        everything = [*model.named_parameters(), *model.named_buffers()]
        lazy = next((name for name, each in everything if nn.parameter.is_lazy(each)), None)
        named = [(name, each) for name, each in everything if not nn.parameter.is_lazy(each)]
        dtypes: dict[torch.dtype, str] = {}
        for name, tensor in named:
            dtypes.setdefault(tensor.dtype, name)
        modules = {name or type(model).__name__: each for name, each in model.named_modules()}
        places = {name: _defining_module(each) for name, each in modules.items()}
        trained = sum(
            each.nbytes
            for each in model.parameters()
            if each.requires_grad and not nn.parameter.is_lazy(each)
        )
        fixed = {name: _constants(each) for name, each in modules.items()}
        constant = sum(each.nbytes for values in fixed.values() for each in values)
        config = getattr(model, "config", None)
        return cls(
            nbytes=constant + sum(tensor.nbytes for _, tensor in named),
            constant=constant,
            # TorchScript that was frozen has lost its mode, which was eval.
            trained=trained if getattr(model, "training", False) else 0,
            dtypes=dtypes,
            linears={
                n: why_not(each) for n, each in modules.items() if isinstance(each, nn.Linear)
            },
            sparse=[
                name for name, each in modules.items() if getattr(each, "sparse", None) is True
            ],
            cuda_only=[name for name, place in places.items() if place.split(".")[0] in CUDA_ONLY],
            quantized=[name for name, place in places.items() if place.startswith(_QUANTIZED)],
            fixed=[
                name
                for name, values in fixed.items()
                if any(each.is_floating_point() and each.device.type == "cpu" for each in values)
            ],
            lazy=lazy,
            is_eager_attention=getattr(config, "_attn_implementation", None) == "eager",
        )


def _defining_module(module: nn.Module) -> str:
    """Return the name of the Python module that defines the class of a module.

    One that was compiled is a ``torch.jit.ScriptModule`` in Python, whichever class it was made of.
    """
    if not isinstance(module, torch.jit.ScriptModule):
        return type(module).__module__
    name: str = module._c._type().qualified_name()  # as "__torch__.torch.nn.modules.linear.Linear"
    # A name that is compiled twice gets a part of its own, such as "___torch_mangle_0".
    parts = [each for each in name.split(".")[:-1] if not each.startswith("___torch_mangle")]
    return ".".join(parts[1:])


def _constants(module: nn.Module) -> list[Tensor]:
    """Return the arrays that the forward of a module has as constants, as those of a frozen one.

    They are neither parameters nor buffers, and stay where they are when the module is moved.
    Scalars are left out: operators take them from the CPU on every device.
    """
    if not isinstance(module, torch.jit.ScriptModule) or not module._c._has_method("forward"):
        return []
    graph = module._c._get_method("forward").graph
    values = (
        each.t("value")
        for kind in _CONSTANTS
        for each in graph.findAllNodes(kind, recurse=True)
        if each.hasAttribute("value") and each.kindOf("value") == "t"
    )
    return [each for each in values if each.dim() > 0]


@dataclass
class OperatorsSeen:
    """The operators that one call of a model came to."""

    names: set[str] = field(default_factory=set)  # as "aten::mm"
    # The operators whose result has a shape, or is a number, that depends on values.
    dynamic: list[str] = field(default_factory=list)
    error: Exception | None = None  # that the call raised


def observe(model: nn.Module, example_inputs: Any) -> OperatorsSeen:
    """Call a model once, in eval mode and without gradients, and return the operators it called.

    `example_inputs` are a tensor, a tuple of arguments or a dict of keyword arguments, on the
    device of the model.
    """
    seen = OperatorsSeen()
    training = {each: each.training for each in model.modules() if hasattr(each, "training")}
    # Not model.eval(), which may be more than the mode, as where LoRA merges weights, and which an
    # exported program does not have.
    for module in training:
        module.training = False
    try:
        with torch.no_grad(), _Recorder(seen):
            if isinstance(example_inputs, Mapping):
                model(**example_inputs)
            elif isinstance(example_inputs, (tuple, list)):
                model(*example_inputs)
            else:
                model(example_inputs)
    except Exception as error:
        seen.error = error
    finally:
        for module, was_training in training.items():
            module.training = was_training
    return seen


class _Recorder(TorchDispatchMode):
    def __init__(self, seen: OperatorsSeen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
        if name not in self.seen.names and tags & set(func.tags):
            self.seen.dynamic.append(name)
        self.seen.names.add(name)
        return func(*args, **(kwargs or {}))
