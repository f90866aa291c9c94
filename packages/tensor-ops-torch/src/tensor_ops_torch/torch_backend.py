"""The ``torch`` backend of tensor_ops: NumPy arrays, computed by PyTorch's functions on the CPU.

It computes in float64 whatever the dtype: PyTorch's own kernels for float32 leave the bounds of the
ops in the tails of SiLU and GELU, where rows are large or far from zero, and where terms cancel.
Results in float64 are wrong where a step leaves the range of float64: gelu of a gate alone, or the
product of `grad` and `up`. What it is for is to compare, and to have every op where PyTorch is and
nothing else.

It is in no list of priorities by itself; ``backend="torch"`` asks for it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensor_ops.extension import DTYPES, OPS, Op, check_outputs, check_values
from tensor_ops_torch.operators.tensors import DTYPE_NAMES, as_numpy
from tensor_ops_torch.ops import FORMULAS

__all__ = ["API_VERSION", "CAPABILITIES", "info", "probe", "supports"]

API_VERSION = 1
CAPABILITIES = {"devices": ["cpu"]}

_TORCH_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def probe() -> dict[str, Any]:
    """Return that this backend is available: PyTorch was imported, and always has the CPU."""
    return {"available": True, "reason": None, "devices": ["cpu"], "kind": "cpu"}


def info() -> dict[str, Any]:
    """Return the documented keys of ``tensor_ops.get_backend_info("torch")``."""
    return {
        "name": "torch",
        "display_name": "PyTorch",
        "available": True,
        "reason": None,
        "version": torch.__version__,
        "device_name": f"CPU ({torch.backends.cpu.get_cpu_capability()})",
        "device_count": 1,
        "compute_capability": 0,
        "compute_units": torch.get_num_threads(),
        "max_memory": 0,
        "max_shared_memory": 0,
        "dtypes": list(DTYPES),
        "ops": [name for name in OPS if name in FORMULAS],
    }


def supports(op: str, dtype: str, device: str) -> str | None:
    """Return why an op cannot run for a dtype on a device, None if it can."""
    if op not in FORMULAS:
        return f"it has no {op}"
    if dtype not in DTYPES:
        return f"it has no {dtype}; it has {', '.join(DTYPES)}"
    return None if device == "cpu" else f"it takes arrays on the CPU, not on {device}"


def _function(op: Op, side: ModuleType) -> Callable[..., Any]:
    formula = getattr(side, "precise", side.composed)
    arrays = [kind for kind in op.kinds.values() if kind.is_array]
    results_of = _of_rows if any(kind.role != "elements" for kind in arrays) else _of_elements

    @functools.wraps(op.body)
    def function(*args: Any, **kwargs: Any) -> Any:
        values = op.bind(args, kwargs)
        out = values.pop("out")
        check_values(op.name, op.kinds, values)
        outputs = check_outputs(op.name, op.results_like, op.kinds, values, out)
        if outputs[0].size:
            _stay_on_one_thread_after_a_fork()
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                results = results_of(op, formula, values)
                for output, result in zip(outputs, results, strict=True):
                    output[...] = as_numpy(result.to(_TORCH_DTYPES[output.dtype.name]))
        else:
            for output in outputs:
                output[...] = 0  # the sums over no rows
        return outputs[0] if op.outputs == 1 else outputs

    del function.__wrapped__  # what runs is not the NumPy body
    function.__signature__ = op.signature  # type: ignore[attr-defined]
    return function


def _stay_on_one_thread_after_a_fork() -> None:
    """Let a forked child compute, which would wait for threads that only its parent has."""
    global _pid
    if os.getpid() != _pid:
        torch.set_num_threads(1)
        _pid = os.getpid()


_pid = os.getpid()


def _of_elements(
    op: Op, formula: Callable[..., Tensor], values: dict[str, Any]
) -> tuple[Tensor, ...]:
    """Return the results of an elementwise op in float64.

    PyTorch has two functions for an element, one for whole vectors and one for what is left over at
    the end of each thread's part, and they differ in the last digit. Blocks of whole vectors that
    one thread takes leave nothing over.
    """
    shape, size = values[op.first].shape, values[op.first].size
    padded = -(-size // _VECTORS) * _VECTORS
    given = {}
    for name, value in values.items():
        if not isinstance(value, np.ndarray):
            continue
        given[name] = torch.zeros(padded, dtype=torch.float64)
        with np.errstate(invalid="ignore"):  # converting a signalling NaN
            given[name].numpy()[:size] = value.reshape(-1)
    scalars = {name: value for name, value in values.items() if name not in given}
    results = torch.empty(op.outputs, padded, dtype=torch.float64)
    for start in range(0, padded, _BLOCK):
        block = slice(start, start + _BLOCK)
        parts = {name: wide[block] for name, wide in given.items()}
        found = formula(**parts, **scalars)
        for result, each in zip(results, found if op.outputs > 1 else (found,), strict=True):
            result[block] = each
    return tuple(result[:size].reshape(shape) for result in results)


# A multiple of what any vector unit takes at once, and less than what PyTorch gives two threads.
_VECTORS = 64
_BLOCK = 256 * _VECTORS


def _of_rows(op: Op, formula: Callable[..., Any], values: dict[str, Any]) -> tuple[Tensor, ...]:
    """Return the results of an op on rows in float64.

    PyTorch splits the sum over one long row among its threads, and sums each of more rows in one:
    the bits of a row would depend on the batch around it. So a row alone is given twice.
    """
    shape = values[op.first].shape
    alone = values[op.first].size == shape[-1]
    given = {
        name: _wide(value, twice=alone and op.kinds[name].is_full)
        if isinstance(value, np.ndarray)
        else value
        for name, value in values.items()
    }
    found = formula(**given)
    results = found if isinstance(found, tuple) else (found,)
    if not alone:
        return results
    return tuple(
        each[0].reshape(shape) if op.kinds[like].is_full else each / 2  # a sum of both
        for each, like in zip(results, op.results_like, strict=True)
    )


def _wide(array: np.ndarray[Any, Any], twice: bool) -> Tensor:
    """Return a copy in float64; if `twice`, of the row twice."""
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        wide = np.array(array, dtype=np.float64, order="C")
    return torch.from_numpy(np.stack([wide, wide]) if twice else wide)


for _name, _formulas in FORMULAS.items():
    globals()[_name] = _function(OPS[_name], _formulas)
    __all__ += [_name]  # noqa: PLE0604
