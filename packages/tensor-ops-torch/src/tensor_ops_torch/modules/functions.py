"""The functions of PyTorch that a forward may call, as what they make of formulas."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import torch
from torch.nn import functional

from tensor_ops_torch.modules.algebra import Formula, function, power
from tensor_ops_torch.modules.refusal import RefusedError
from tensor_ops_torch.modules.values import Attribute, Device, N, Shape, Value, as_formula

__all__ = [
    "HALVES",
    "METHODS",
    "PURE",
    "arithmetic",
    "axis_of",
    "call_of",
    "function_called",
    "layer_norm_of",
    "rms_norm_of",
]

# Functions of numbers and dtypes that have no effect.
PURE = (
    *(math.sqrt, math.exp, math.log, math.pow, torch.finfo, float, int, abs, min, max, len),
    *(tuple, list),
)
# The names of the functions that return one half of each row.
HALVES = ("first half", "second half")
_EXACT = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_Handler = Callable[..., Any]


def arithmetic(operation: Callable[[Any, Any], Any], first: Any, second: Any) -> Value | Formula:
    """Return the sum, difference, product, quotient or power of two values."""
    one, other = as_formula(first), as_formula(second)
    if operation is not operator.pow:
        formula = operation(one, other)
    elif other.value is None:
        raise RefusedError("raises to a power that is no constant")
    else:
        formula = power(one, other.value)
    values = [each for each in (first, second) if isinstance(each, Value)]
    if not values:
        return formula
    dtype = reduce(torch.promote_types, (each.dtype for each in values))
    return Value(formula, dtype, _broadcast(*(each.shape for each in values)))


def function_called(found: Any) -> _Handler | None:
    """Return what a function of PyTorch does, None if it is not known."""
    try:
        return _FUNCTIONS.get(found)
    except TypeError:  # it has no hash
        return None


def call_of(child: str, argument: Formula) -> Formula:
    """Return what a child of the module makes of a formula."""
    return function(f"call {child}", argument)


def rms_norm_of(core: Formula, eps: Formula) -> Formula:
    """Return ``core / sqrt(mean(core^2) + eps)``."""
    return core * power(function("mean", core * core) + eps, -0.5)


def layer_norm_of(x: Formula, eps: Formula) -> Formula:
    """Return ``(x - mean(x)) / sqrt(var(x) + eps)``."""
    return rms_norm_of(x - function("mean", x), eps)


def _broadcast(*shapes: str) -> str:
    kinds = set(shapes)
    if len(kinds) == 1:
        return shapes[0]
    if "means" in kinds:
        # It would meet the last axis of the others.
        raise RefusedError("broadcasts a mean that has lost its axis")
    return "rows"


def _tensor(value: Any) -> Value:
    if not isinstance(value, Value):
        raise RefusedError(f"passes a {type(value).__name__} where a tensor is known")
    return value


def _rows(value: Any) -> Value:
    value = _tensor(value)
    if value.shape != "rows":
        raise RefusedError("takes a mean of what is no row")
    return value


def _reduced(value: Value, formula: Formula, dim: Any, keepdim: Any) -> Value:
    if not (dim == -1 if type(dim) is int else dim in ((-1,), [-1])):
        raise RefusedError(f"reduces over the axes {dim}, not the last one")
    return Value(formula, value.dtype, "column" if keepdim is True else "means")


def _cast(value: Any, dtype: torch.dtype, reading: Any) -> Value:
    value = _tensor(value)
    if dtype is value.dtype:
        return value
    if dtype not in _EXACT:
        raise RefusedError(f"converts to {dtype}")
    if _EXACT[dtype] < _EXACT[reading.dtype] or (
        dtype.itemsize == 2 and dtype is not reading.dtype
    ):
        raise RefusedError(f"rounds to {dtype}")
    reading.uses_dtypes = True
    return Value(value.formula, dtype, value.shape)


def _mean(
    reading: Any, input: Any, dim: Any = None, keepdim: Any = False, *, axis: Any = None
) -> Any:
    value = _rows(input)
    return _reduced(value, function("mean", value.formula), axis if dim is None else dim, keepdim)


def _sum(
    reading: Any, input: Any, dim: Any = None, keepdim: Any = False, *, axis: Any = None
) -> Any:
    mean = _mean(reading, input, dim, keepdim, axis=axis)
    return mean.as_formula(N * mean.formula)


def _var(
    reading: Any,
    input: Any,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: Any = False,
    *,
    correction: Any = None,
) -> Any:
    value = _rows(input)
    if not (unbiased is False or (unbiased is None and type(correction) is int and not correction)):
        raise RefusedError("divides the variance by n - 1")
    centred = value.formula - function("mean", value.formula)
    return _reduced(value, function("mean", centred * centred), dim, keepdim)


def _norm(reading: Any, input: Any, p: Any = 2, dim: Any = None, keepdim: Any = False) -> Any:
    value = _rows(input)
    if p != 2:
        raise RefusedError(f"takes the norm of order {p}")
    squares = function("mean", value.formula * value.formula)
    return _reduced(value, power(N * squares, 0.5), dim, keepdim)


def _vector_norm(reading: Any, x: Any, ord: Any = 2, dim: Any = None, keepdim: Any = False) -> Any:
    return _norm(reading, x, ord, dim, keepdim)


def _to(reading: Any, input: Any, *args: Any, dtype: Any = None, device: Any = None) -> Any:
    value = _tensor(input)
    for each in (*args, device):
        if isinstance(each, torch.dtype) and dtype is None:
            dtype = each
        elif isinstance(each, Value) and len(args) == 1:
            dtype = each.dtype
        elif each is not None and not isinstance(each, Device):
            raise RefusedError(f"converts to {each}")
    return value if dtype is None else _cast(value, dtype, reading)


def _converted(dtype: torch.dtype) -> _Handler:
    return lambda reading, input: _cast(input, dtype, reading)


def _of_two(operation: Callable[[Any, Any], Any]) -> _Handler:
    return lambda reading, input, other: arithmetic(operation, input, other)


def _mapped(change: Callable[[Formula], Formula]) -> _Handler:
    """Return the handler of a function of each element by itself."""

    def call(reading: Any, input: Any) -> Any:
        value = _tensor(input)
        return value.as_formula(change(value.formula))

    return call


def _same(reading: Any, input: Any) -> Any:
    return _tensor(input)


def _silu(reading: Any, input: Any, inplace: Any = False) -> Any:
    if reading.known(inplace) is not False:
        raise RefusedError("writes to its input (inplace=True)")
    return _mapped(partial(function, "silu"))(reading, input)


def _gelu(reading: Any, input: Any, approximate: Any = "none") -> Any:
    approximate = reading.known(approximate)
    if approximate not in ("none", "tanh"):
        raise RefusedError(f"calls gelu with approximate={approximate!r}")
    return _mapped(partial(function, f"gelu {approximate}"))(reading, input)


def _softmax(
    reading: Any, input: Any, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
) -> Any:
    value = _tensor(input)
    if reading.known(dim) != -1 or dtype is not None or value.shape != "rows":
        raise RefusedError(f"takes the softmax over the axis {reading.known(dim)}, not -1")
    return value.as_formula(function("softmax", value.formula))


def _check_row(reading: Any, shape: Any) -> None:
    """Check that a shape to normalise is that of a row; a number in it is one more condition."""
    if shape == Shape("vector"):
        return
    if isinstance(shape, (int, Attribute)):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)) or len(shape) != 1:
        raise RefusedError(f"normalises the axes of {shape}, expected the last axis only")
    (width,) = map(reading.known, shape)
    if width == N:
        return
    if type(width) is not int:
        raise RefusedError(f"normalises the axes of {shape}")
    reading.width = width


def _scaled(value: Value, weight: Any, bias: Any) -> Value:
    for operation, each in ((operator.mul, weight), (operator.add, bias)):
        if each is not None:
            if _tensor(each).shape != "vector" or each.dtype != value.dtype:
                raise RefusedError("passes a weight or bias of another dtype or shape")
            value = arithmetic(operation, value, each)  # type: ignore[assignment]
    return value


def _rms_norm(
    reading: Any, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None
) -> Any:
    value = _rows(input)
    _check_row(reading, normalized_shape)
    if eps is None:
        # That of the type which PyTorch computes in.
        wide = torch.float32 if value.dtype.itemsize == 2 else value.dtype
        eps = torch.finfo(wide).eps
    eps = as_formula(eps)
    return _scaled(value.as_formula(rms_norm_of(value.formula, eps)), weight, None)


def _layer_norm(
    reading: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
) -> Any:
    value = _rows(input)
    _check_row(reading, normalized_shape)
    normed = value.as_formula(layer_norm_of(value.formula, as_formula(eps)))
    return _scaled(normed, weight, bias)


def _chunk(reading: Any, input: Any, chunks: Any, dim: Any = 0) -> Any:
    value = _tensor(input)
    if reading.known(chunks) != 2 or reading.known(dim) != -1 or value.shape != "rows":
        raise RefusedError("chunks a tensor otherwise than in the halves of its rows")
    return tuple(value.as_formula(function(each, value.formula)) for each in HALVES)


def _unsqueeze(reading: Any, input: Any, dim: Any) -> Any:
    value = _tensor(input)
    if value.shape != "means" or dim != -1:
        raise RefusedError("calls unsqueeze() for another axis than that of a mean")
    return Value(value.formula, value.dtype, "column")


def _size(reading: Any, input: Any, dim: Any = None) -> Any:
    value = _tensor(input)
    return Shape(value.shape) if dim is None else axis_of(Shape(value.shape), dim)


def axis_of(shape: Shape, axis: Any) -> Any:
    """Return the length of an axis, of those that are known."""
    if axis == -1 and shape.of in ("rows", "vector"):
        return N
    raise RefusedError(f"uses the length of axis {axis}")


_OPERATIONS = {"add": "add", "sub": "sub", "mul": "mul", "pow": "pow", "div": "truediv"}
_POWERS = {"rsqrt": -0.5, "sqrt": 0.5, "square": 2, "reciprocal": -1}
_ALIASES = {"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div"}
_ALIASES["negative"] = "neg"
_CASTS = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
# Functions of torch that are methods of tensors too.
_BOTH: dict[str, _Handler] = {
    **{name: _of_two(getattr(operator, of)) for name, of in _OPERATIONS.items()},
    **{name: _mapped(partial(function, name)) for name in ("exp", "sigmoid", "tanh", "erf")},
    **{name: _mapped(partial(power, exponent=exponent)) for name, exponent in _POWERS.items()},
    "neg": _mapped(operator.neg),
    "clone": _same,
    "mean": _mean,
    "sum": _sum,
    "var": _var,
    "norm": _norm,
    "softmax": _softmax,
    "chunk": _chunk,
    "unsqueeze": _unsqueeze,
}
_BOTH |= {alias: _BOTH[name] for alias, name in _ALIASES.items()}
# Methods of tensors.
METHODS: dict[str, _Handler] = {
    **_BOTH,
    "to": _to,
    "type": _to,
    "type_as": lambda reading, input, other: _cast(input, _tensor(other).dtype, reading),
    **{name: _converted(getattr(torch, dtype)) for name, dtype in _CASTS.items()},
    "contiguous": _same,
    "size": _size,
}
_FUNCTIONS: dict[Any, _Handler] = {
    **{getattr(torch, name): handler for name, handler in _BOTH.items()},
    torch.special.erf: _BOTH["erf"],
    torch.linalg.vector_norm: _vector_norm,
    torch.rms_norm: _rms_norm,
    torch.layer_norm: _layer_norm,
    functional.rms_norm: _rms_norm,
    functional.layer_norm: _layer_norm,
    functional.silu: _silu,
    functional.gelu: _gelu,
    functional.sigmoid: _BOTH["sigmoid"],
    functional.tanh: _BOTH["tanh"],
    functional.softmax: _softmax,
}
