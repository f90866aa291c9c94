"""The operators on DTensors: the placements that they take, and those of their results.

Rows stay whole. Every axis but that of the rows may be sharded, and every axis of an elementwise
operator; whatever is placed otherwise, DTensor redistributes.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tensor_ops.extension import Op

__all__ = ["register"]

# Its import takes as long as half of torch's, and few programs need it.
_DTENSOR = "torch.distributed.tensor"


def register(operators: Mapping[str, Any], ops: Mapping[str, Op]) -> None:
    """Tell DTensor of the operators, as soon as a program imports it."""

    def tell() -> None:
        from torch.distributed.tensor.experimental import register_sharding

        for name, operator in operators.items():
            register_sharding(operator)(_placements(ops[name]))

    if _DTENSOR in sys.modules:
        tell()
    else:
        sys.meta_path.insert(0, _AfterImport(_DTENSOR, tell))


def _placements(op: Op) -> Callable[..., Any]:
    """Return the function from an operator's arguments to the placements that it takes."""
    kinds = [kind for kind in op.kinds.values() if kind.is_array]
    of_rows = any(kind.role != "elements" for kind in kinds)

    def acceptable(*args: Any, **scalars: Any) -> list[tuple[list[Any], list[Any]]]:
        from torch.distributed.tensor import Partial, Replicate, Shard

        x = args[0]

        def inputs(place: Callable[[str, Any], Any]) -> list[Any]:
            arrays = zip(kinds, args, strict=False)
            placed = [None if each is None else place(kind.role, each) for kind, each in arrays]
            return placed + [None] * (len(args) - len(placed))

        def sharded(axis: int) -> Callable[[str, Any], Any]:
            def place(role: str, tensor: Any) -> Any:
                if role == "row_vector":
                    return Replicate()
                own = axis - (x.ndim - tensor.ndim)
                # An axis that broadcasts is the same for every shard.
                whole = own < 0 or tensor.shape[own] != x.shape[axis]
                return Replicate() if whole else Shard(own)

            return place

        def outputs(axis: int) -> list[Any]:
            # A sum over all rows is that of the sums over the rows of each shard.
            is_full = (op.kinds[like].is_full for like in op.results_like)
            return [Shard(axis) if each else Partial() for each in is_full]

        axes = range(x.ndim - 1 if of_rows else x.ndim)
        return [
            ([Replicate()] * op.outputs, inputs(lambda role, tensor: Replicate())),
            *((outputs(axis), inputs(sharded(axis))) for axis in axes),
        ]

    return acceptable


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once, right after a module was imported."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader = spec.loader if spec else None
        if loader is not None:
            execute = loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self._call()

            loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec
