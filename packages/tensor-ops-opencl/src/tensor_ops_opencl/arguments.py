"""The kinds of argument an op can take, and their checks, for NumPy's and pyopencl's arrays.

An op's signature names its kinds as annotations: ``x: Rows``, ``eps: NonNegative``.
"""

import math
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

from tensor_ops_opencl.overlaps import is_same_view, overlaps_itself, share_memory

__all__ = [
    "DTYPES",
    "Array",
    "Elements",
    "Finite",
    "HalfRows",
    "Kind",
    "NonNegative",
    "OptionalRowVector",
    "ResidualRows",
    "RowVector",
    "Rows",
    "check_out",
    "check_values",
    "dtype_name",
    "is_device_array",
    "kind_of",
    "output_names",
]

Array = Any
DTYPES = ("float32", "float16", "bfloat16", "float64")

_FULL = frozenset({"elements", "rows"})
_ARRAYS = _FULL | {"row_vector", "half_rows"}


class Kind(NamedTuple):
    """What an argument is.

    Attributes
    ----------
    role : str
        ``elements`` (an array of any shape), ``rows`` (the same with at least one axis),
        ``row_vector`` (n values for rows of length n), ``half_rows`` (broadcasts to rows of
        length n/2), ``real``, ``choice`` or ``flag``.
    optional : bool
        Whether None is allowed.
    minimum : float
        Of a ``real``.
    choices : tuple of str
        Of a ``choice``.
    wide : bool
        Whether the array may be float32 beside a first array of float16 or bfloat16.
    """

    role: str
    optional: bool = False
    minimum: float = -math.inf
    choices: tuple[str, ...] = ()
    wide: bool = False

    @property
    def is_full(self) -> bool:
        """True for arrays that have the result's shape."""
        return self.role in _FULL

    @property
    def is_array(self) -> bool:
        return self.role in _ARRAYS


Elements = Annotated[Any, Kind("elements")]
Rows = Annotated[Any, Kind("rows")]
ResidualRows = Annotated[Any, Kind("rows", wide=True)]
RowVector = Annotated[Any, Kind("row_vector", wide=True)]
OptionalRowVector = Annotated[Any, Kind("row_vector", optional=True, wide=True)]
HalfRows = Annotated[Any, Kind("half_rows", wide=True)]
NonNegative = Annotated[float, Kind("real", minimum=0.0)]
Finite = Annotated[float, Kind("real")]


def kind_of(annotation: Any) -> Kind:
    """Return the kind that an annotation of an op's signature stands for."""
    if annotation is bool:
        return Kind("flag")
    if get_origin(annotation) is Literal:
        return Kind("choice", choices=get_args(annotation))
    (kind,) = (extra for extra in get_args(annotation) if isinstance(extra, Kind))
    return kind


def is_device_array(value: Any) -> bool:
    """Return whether a value is an array of pyopencl, which need not be imported to ask."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def dtype_name(op: str, name: str, array: Any) -> str:
    """Return the name of a supported dtype.

    Raises
    ------
    TypeError
        For any other, naming those that are.
    """
    dtype = array.dtype
    found = _names.get(dtype)
    if found is not None:
        return found
    if dtype.name in DTYPES and not dtype.isnative:
        raise TypeError(
            f"{op}: {name} has the byte order of another machine ({dtype.str!r}); convert it with "
            f'{name}.astype({name}.dtype.newbyteorder("="))'
        )
    if dtype.name in DTYPES and (dtype.name != "bfloat16" or _is_bfloat16(dtype)):
        _names[dtype] = str(dtype.name)
        return str(dtype.name)
    raise TypeError(
        f"{op}: {name} has dtype {dtype}, expected one of {', '.join(DTYPES)}; "
        f"convert it with {name}.astype(...)"
    )


def check_values(op: str, kinds: Mapping[str, Kind], values: dict[str, Any]) -> str:
    """Check every argument of a call, bring the scalars to Python types, and name the dtype.

    Raises
    ------
    TypeError
        For a value of the wrong type, an unsupported dtype, or one that does not go with the first
        array's.
    ValueError
        For a wrong shape or a value out of range.
    """
    first = next(iter(kinds))
    x = values[first]
    for name, kind in kinds.items():
        if not kind.is_array:
            values[name] = _SCALARS[kind.role](op, name, kind, values[name])
    family = _family(op, first, x)
    dtype = dtype_name(op, first, x)
    if kinds[first].role == "rows" and x.ndim == 0:
        raise ValueError(
            f"{op}: {first} has shape (), expected at least one axis; use {first}.reshape(1)"
        )
    partners: dict[str, str] = {}
    for name, kind in kinds.items():
        value = values[name]
        if name != first and kind.is_array and not (kind.optional and value is None):
            _check_family(op, name, value, first, family)
            _check_dtype(op, values, first, name, kind, partners)
            _check_shape(op, first, x, name, kind, value)
    return dtype


def check_out(
    op: str,
    results_like: tuple[str, ...],
    kinds: Mapping[str, Kind],
    values: Mapping[str, Any],
    out: Any,
) -> tuple[Any, ...]:
    """Return the arrays that a caller gave for the results, as a tuple.

    `results_like` names, for each result, the argument whose dtype it has.

    Raises
    ------
    TypeError, ValueError
        If one of them cannot take a result, or overlaps what it must not.
    """
    first = next(iter(kinds))
    x, count = values[first], len(results_like)
    names = output_names(count)
    outputs: tuple[Any, ...] = (out,) if count == 1 else out
    if count > 1 and (not isinstance(out, tuple) or len(out) != count):
        given = f"a tuple of {len(out)}" if isinstance(out, tuple) else _type_name(out)
        raise TypeError(f"{op}: out must be a tuple of {count} arrays, got {given}")
    family = _family(op, first, x)
    for name, output, like in zip(names, outputs, results_like, strict=True):
        # A copy made for the call would take the result and be lost: none is suggested.
        _check_family(op, name, output, first, family, "give an array that takes the result")
        dtype = values[like].dtype
        if output.dtype != dtype:
            raise TypeError(
                f"{op}: {name} has dtype {output.dtype}, expected {dtype} like {like}; "
                f"give an array of dtype {dtype}"
            )
        if output.shape != x.shape:
            raise ValueError(f"{op}: {name} has shape {output.shape}, expected {x.shape}")
        _check_memory(op, name, output, kinds, values)
    if count > 1 and share_memory(outputs[0], outputs[1]):
        raise ValueError(f"{op}: {' and '.join(names)} overlap; give separate arrays")
    return outputs


def output_names(count: int) -> list[str]:
    """Return what messages call the arrays of `out`."""
    return ["out"] if count == 1 else [f"out[{index}]" for index in range(count)]


_FLOAT32 = np.dtype(np.float32)

# The dtypes seen so far: a dtype's own name is slow to ask for.
_names: dict[Any, str] = {}


def _is_bfloat16(dtype: Any) -> bool:
    """Return whether a dtype of that name is the one of ml_dtypes, which is imported if it is."""
    module = sys.modules.get("ml_dtypes")
    return module is not None and dtype == np.dtype(module.bfloat16)


def _family(
    op: str, name: str, value: Any, hint: str = "convert it with numpy.asarray(...)"
) -> str:
    if type(value) is np.ndarray or (
        isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
    ):
        return "numpy.ndarray"
    if is_device_array(value):
        return "pyopencl.array.Array"
    raise TypeError(
        f"{op}: {name} must be a numpy.ndarray or a pyopencl.array.Array, got {_type_name(value)}; "
        f"{hint}"
    )


def _check_family(op: str, name: str, value: Any, first: str, family: str, *hint: str) -> None:
    own = _family(op, name, value, *hint)
    if own != family:
        raise TypeError(f"{op}: {name} is a {own}, expected a {family} like {first}")


def _check_dtype(
    op: str,
    values: Mapping[str, Any],
    first: str,
    name: str,
    kind: Kind,
    partners: dict[str, str],
) -> None:
    """Check the dtype of one array against those before it.

    Arrays that may be float32 share their dtype with those of the same role, a bias with its weight
    and a sine with its cosine: `partners` keeps the first of each role.
    """
    given = values[name].dtype
    like = partners.setdefault(kind.role, name) if kind.wide else first
    if like == name:
        like = first
        if given == _FLOAT32 and values[first].dtype.itemsize == 2:
            return
    if given == values[like].dtype:
        return
    dtype_name(op, name, values[name])
    expected = f"{values[like].dtype} like {like}"
    if kind.wide and like == first and values[first].dtype.itemsize == 2:
        expected += ", or float32"
    raise TypeError(
        f"{op}: {name} has dtype {given}, expected {expected}; "
        f"convert it with {name}.astype({like}.dtype)"
    )


def _check_shape(op: str, first: str, x: Any, name: str, kind: Kind, value: Any) -> None:
    if kind.is_full:
        if value.shape != x.shape:
            raise ValueError(
                f"{op}: {name} has shape {value.shape}, expected {x.shape} like {first}"
            )
    elif kind.role == "row_vector":
        # (n,) for rows (..., n)
        if value.shape != x.shape[-1:]:
            raise ValueError(
                f"{op}: {name} has shape {value.shape}, expected {x.shape[-1:]} to match the "
                f"last axis of {first} with shape {x.shape}"
            )
    else:
        _check_half_rows(op, first, x, name, value)


def _check_half_rows(op: str, first: str, x: Any, name: str, value: Any) -> None:
    # broadcasts to (..., n/2) for rows (..., n)
    if x.shape[-1] % 2:
        raise ValueError(f"{op}: {first} has shape {x.shape}, expected a last axis of even length")
    target = (*x.shape[:-1], x.shape[-1] // 2)
    if not _broadcasts(tuple(value.shape), target):
        raise ValueError(
            f"{op}: {name} has shape {value.shape}, expected a shape that broadcasts to {target} "
            f"for {first} with shape {x.shape}"
        )


@lru_cache(maxsize=256)
def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    own = (1,) * (len(target) - len(shape)) + shape
    return len(own) == len(target) and all(a in (1, b) for a, b in zip(own, target, strict=True))


def _check_memory(
    op: str, name: str, out: Any, kinds: Mapping[str, Kind], values: Mapping[str, Any]
) -> None:
    if isinstance(out, np.ndarray):
        if not out.flags.writeable:
            raise ValueError(f"{op}: {name} is read-only; give a writable array")
        if not out.flags.c_contiguous and overlaps_itself(out):
            raise ValueError(
                f"{op}: {name} with strides {out.strides} overlaps itself, expected one place in "
                "memory for each element"
            )
    for other, kind in kinds.items():
        value = values[other]
        if not kind.is_array or value is None or (value is out and kind.is_full):
            continue
        if share_memory(out, value) and not (kind.is_full and is_same_view(out, value)):
            raise ValueError(
                f"{op}: {name} overlaps {other}; expected separate memory"
                + (f", or exactly the same view as {other}" if kind.is_full else "")
            )


def _is_real(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        return False
    if isinstance(value, (float, int, np.floating, np.integer)):
        return True
    # A scalar of bfloat16 is none of NumPy's own floating-point types.
    return isinstance(value, np.generic) and value.dtype.name == "bfloat16"


def _check_real(op: str, name: str, kind: Kind, value: Any) -> float:
    if type(value) is not float and not _is_real(value):
        raise TypeError(f"{op}: {name} must be a real number, got {_type_name(value)}")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real) or real < kind.minimum:
        expected = "a finite number" + (" >= 0" if kind.minimum == 0 else "")
        raise ValueError(f"{op}: {name} is {value!r}, expected {expected}")
    return real


def _check_choice(op: str, name: str, kind: Kind, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{op}: {name} must be a string, got {_type_name(value)}")
    if value not in kind.choices:
        expected = " or ".join(map(repr, kind.choices))
        raise ValueError(f"{op}: {name} is {value!r}, expected {expected}")
    return value


def _check_flag(op: str, name: str, kind: Kind, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{op}: {name} must be True or False, got {_type_name(value)}")
    return bool(value)


_SCALARS = {"real": _check_real, "choice": _check_choice, "flag": _check_flag}


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
