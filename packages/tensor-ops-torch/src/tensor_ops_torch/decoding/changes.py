"""Checks of whether a model is still the one that a decoder was made from.

PyTorch counts what is written to a tensor in ``Tensor._version``. Not counted are what the fused
kernels of optimizers write, what goes through ``.data``, and what another library writes to the
same memory. So samples of each tensor are compared too. What else decides on a step is compared
with what it was: modules, their settings and their code, the configuration, adapters.
"""

from __future__ import annotations

import copy
import hashlib
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tensor_ops_torch.decoding.errors import WeightsChangedError
from tensor_ops_torch.decoding.named_modules import NamedModule
from tensor_ops_torch.decoding.structure import (
    ExpectedModule,
    code_outside_class,
    configured_values,
    difference,
    is_rewritten,
    other_value,
    plain_values,
)
from tensor_ops_torch.decoding.tensor_samples import TensorSamples

__all__ = ["ModelState"]


class ModelState:
    """The modules, weights and settings that a model had, without holding any of its tensors.

    `model` is as the caller holds it, `own` the model of transformers in that, whose modules are
    `modules`; `expected` says what they are, by their names.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        own: Any,
        modules: list[NamedModule],
        expected: Mapping[str, ExpectedModule],
    ) -> None:
        self._own = weakref.ref(own)
        self._configured = copy.deepcopy(configured_values(own.config))
        self._children = [
            (weakref.ref(parent), name, weakref.ref(child))
            for parent in model.modules()
            for name, child in parent._modules.items()
            if child is not None
        ]
        self._modules = [(name, weakref.ref(module)) for name, module in own.named_modules()]
        self._named = [
            (named.name, weakref.ref(named.module), expected[named.name]) for named in modules
        ]
        self._adapters = [
            (
                named.name,
                weakref.ref(named.layer),
                named.adapters,
                copy.deepcopy(_adapters_of(named.layer, named.adapters)),
            )
            for named in modules
            if named.layer is not None
        ]
        self._tensors = list(_tensors(modules, expected))
        self._samples = TensorSamples([each.found() for each in self._tensors])

    def check(self) -> None:
        """Raise a WeightsChangedError if a step of the model would be another one now."""
        own = self._own()
        if own is None:
            return
        if (problem := self._change(own)) is not None:
            raise WeightsChangedError(
                "the model was changed after the decoder was made, which computes with what it "
                f"was: {problem}; make the decoder again, by tensor_ops_torch.decoder(model)"
            )
        if (problem := code_outside_class(own, self._named_modules())) is not None:
            raise WeightsChangedError(
                f"the model was changed after the decoder was made: {problem}; remove it"
            )

    def _change(self, own: Any) -> str | None:
        return (
            self._replaced_module()
            or self._changed_adapter()
            or self._changed_tensor()
            or self._changed_setting(own)
        )

    def _replaced_module(self) -> str | None:
        for parent, name, child in self._children:
            owner, before = parent(), child()
            if owner is not None and (before is None or owner._modules.get(name) is not before):
                return f"the module {name!r} of a {type(owner).__name__} was replaced or removed"
        return None

    def _changed_adapter(self) -> str | None:
        for name, layer, pending, state in self._adapters:
            if _adapters_of(layer(), pending) != state:
                return f"the adapters of {name} were merged, unmerged, activated or scaled"
        return None

    def _changed_tensor(self) -> str | None:
        for each in self._tensors:
            if (problem := each.change()) is not None:
                return f"the weight {each.name} {problem}"
        place = self._samples.first_change([each.found() for each in self._tensors])
        return None if place is None else f"the weight {self._tensors[place].name} was written to"

    def _changed_setting(self, own: Any) -> str | None:
        if (problem := other_value(own.config, self._configured)) is not None:
            return f"of its configuration {problem} as before"
        for name, module, expected in self._named:
            if (problem := difference(name, module(), expected, own.config)) is not None:
                return problem
        return None

    def _named_modules(self) -> dict[str, Any]:
        return {name: module() for name, module in self._modules}


class _WatchedTensor:
    """A parameter or a buffer of a module, as it was."""

    def __init__(self, name: str, owner: torch.nn.Module, table: str, key: str) -> None:
        self.name, self._owner, self._table, self._key = name, weakref.ref(owner), table, key
        tensor = self.found()
        self._tensor, self._state = weakref.ref(tensor), _state_of(tensor)

    def found(self) -> Any:
        """Return the tensor that the module has now, None if it has none."""
        owner = self._owner()
        return None if owner is None else vars(owner)[self._table].get(self._key)

    def change(self) -> str | None:
        """Return what PyTorch tells of a change, None if it tells of none."""
        now = self.found()
        if now is None or now is not self._tensor():
            return "was replaced"
        state = _state_of(now)
        if state == self._state:
            return None
        return "was written to" if state[1:] == self._state[1:] else "has other memory"


class _TemporarilyParametrized(_WatchedTensor):
    """A parameter that peft parametrizes in each forward, which PyTorch counts as a write."""

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self._content = _content_of(self.found())

    def change(self) -> str | None:
        problem = super().change()
        if problem == "was written to" and _content_of(self.found()) == self._content:
            self._state = _state_of(self.found())
            return None
        return problem


def _tensors(
    modules: list[NamedModule], expected: Mapping[str, ExpectedModule]
) -> Iterator[_WatchedTensor]:
    """Yield what modules compute with: their parameters and buffers, and those of adapters."""
    for named in modules:
        parametrized = getattr(named.layer, "parameter_name", None) if named.adapters else None
        for key in _of(named.module, "_parameters"):
            kind = _TemporarilyParametrized if key == parametrized else _WatchedTensor
            yield kind(f"{named.name}.{key}", named.module, "_parameters", key)
        for key in _of(named.module, "_buffers"):
            if key in expected[named.name].buffers and not is_rewritten(named.module, key):
                yield _WatchedTensor(f"{named.name}.{key}", named.module, "_buffers", key)
        for prefix, module in named.layer.named_modules() if named.adapters else ():
            if module is named.module:
                continue
            for table in ("_parameters", "_buffers"):
                for key in _of(module, table):
                    yield _WatchedTensor(f"{named.name}.{prefix}.{key}", module, table, key)


def _of(module: torch.nn.Module, table: str) -> list[str]:
    return [key for key, tensor in vars(module)[table].items() if tensor is not None]


def _state_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    # Tensors that were made in inference mode count nothing.
    version = None if tensor.is_inference() else tensor._version
    return version, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _content_of(tensor: torch.Tensor) -> bytes:
    bits = tensor.detach().cpu().contiguous().view(torch.uint8)
    return hashlib.blake2b(bits.numpy()).digest()


def _adapters_of(layer: Any, pending: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what decides on the adapters of a layer; of those to be merged, their settings too."""
    settings = {
        # Other adapters may be added and deleted: their settings do not count.
        key: {each: value.get(each) for each in pending} if isinstance(value, dict) else value
        for key, value in (plain_values(vars(layer)) if pending else {}).items()
        if key != "training"
    }
    return (
        list(layer.merged_adapters),
        list(layer.active_adapters),
        bool(layer.disable_adapters),
        settings,
    )
