"""The kinds of argument an op can take, and their checks.

An op's signature names its kinds as annotations (``x: Rows``, ``eps: NonNegative``); the
checks here are those of the NumPy backend. Native backends check in their own code, with the
same exception types.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

__all__ = [
    "DTYPES",
    "Array",
    "Elements",
    "Finite",
    "HalfRows",
    "Kind",
    "NonNegative",
    "OptionalRowVector",
    "Outputs",
    "ResidualRows",
    "RowVector",
    "Rows",
    "check_ndarray",
    "check_outputs",
    "check_values",
    "dtype_name",
    "is_half",
    "kind_of",
    "mixtures",
]

Array = Any


class _DTypes(Mapping[str, np.dtype[Any]]):
    """The supported dtypes by name; ml_dtypes is imported when bfloat16 is first looked up."""

    def __init__(self) -> None:
        self._found = {name: np.dtype(name) for name in ("float32", "float16", "float64")}

    def __getitem__(self, name: str) -> np.dtype[Any]:
        if name == "bfloat16" and name not in self._found:
            import ml_dtypes

            self._found[name] = np.dtype(ml_dtypes.bfloat16)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("float32", "float16", "bfloat16", "float64"))

    def __len__(self) -> int:
        return 4


DTYPES: Mapping[str, np.dtype[Any]] = _DTypes()

# The dtypes seen so far: a dtype's own name is slow to ask for.
_names: dict[Any, str] = {}


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
        Whether the array may be float32 beside a float16 or bfloat16 `x`.
    """

    role: str
    optional: bool = False
    minimum: float = -math.inf
    choices: tuple[str, ...] = ()
    wide: bool = False

    @property
    def is_array(self) -> bool:
        return self.role in ("elements", "rows", "row_vector", "half_rows")

    @property
    def is_full(self) -> bool:
        """True for arrays that have the result's shape."""
        return self.role in ("elements", "rows")


Elements = Annotated[Any, Kind("elements")]
Rows = Annotated[Any, Kind("rows")]
ResidualRows = Annotated[Any, Kind("rows", wide=True)]
RowVector = Annotated[Any, Kind("row_vector", wide=True)]
OptionalRowVector = Annotated[Any, Kind("row_vector", optional=True, wide=True)]
HalfRows = Annotated[Any, Kind("half_rows", wide=True)]
NonNegative = Annotated[float, Kind("real", minimum=0.0)]
Finite = Annotated[float, Kind("real")]
Outputs = Any


def kind_of(annotation: Any) -> Kind:
    """Return the kind that an annotation of an op's signature stands for."""
    if annotation is bool:
        return Kind("flag")
    if get_origin(annotation) is Literal:
        return Kind("choice", choices=get_args(annotation))
    kinds = [extra for extra in get_args(annotation) if isinstance(extra, Kind)]
    if len(kinds) != 1:
        raise TypeError(f"{annotation!r} does not name an argument kind of tensor_ops.arguments")
    return kinds[0]


def is_half(dtype: Any) -> bool:
    """Return whether a supported dtype is float16 or bfloat16."""
    return bool(dtype.itemsize == 2)


def mixtures(kinds: Mapping[str, Kind]) -> list[tuple[str, ...]]:
    """Return each set of arguments that may be float32 together beside a half `x`.

    Arguments of one role, a weight and its bias or a cosine and its sine, share their dtype.

    Examples
    --------
    >>> wide = {"r": Kind("rows", wide=True), "w": Kind("row_vector", wide=True)}
    >>> mixtures({"x": Kind("rows")} | wide)
    [('r',), ('w',), ('r', 'w')]
    """
    by_role: dict[str, tuple[str, ...]] = {}
    for name, kind in kinds.items():
        if kind.wide:
            by_role[kind.role] = (*by_role.get(kind.role, ()), name)
    groups = list(by_role.values())
    return [
        tuple(itertools.chain.from_iterable(chosen))
        for count in range(1, len(groups) + 1)
        for chosen in itertools.combinations(groups, count)
    ]


def dtype_name(op: str, argument: str, array: Any) -> str:
    """Return the name of a supported dtype, or raise TypeError naming those that are."""
    dtype = array.dtype
    known = _names.get(dtype)
    if known is not None:
        return known
    name = str(dtype.name)
    if name in DTYPES and dtype == DTYPES[name]:
        _names[dtype] = name
        return name
    if name in DTYPES and not dtype.isnative:
        raise TypeError(
            f"{op}: {argument} has the byte order of another machine ({dtype.str!r}); convert it "
            f'with {argument}.astype({argument}.dtype.newbyteorder("="))'
        )
    raise TypeError(
        f"{op}: {argument} has dtype {dtype}, expected one of {', '.join(DTYPES)}; "
        f"convert it with {argument}.astype(...)"
    )


def check_values(op: str, kinds: dict[str, Kind], values: dict[str, Any]) -> None:
    """Check every argument of a call and bring the scalars to Python types, in place.

    Raises
    ------
    TypeError
        For a value of the wrong type, an unsupported dtype, or one that does not go with x's.
    ValueError
        For a wrong shape or a value out of range.
    """
    first = next(iter(kinds))
    partners: dict[str, str] = {}
    for name, kind in kinds.items():
        value = values[name]
        if value is None and kind.optional:
            continue
        if kind.is_array:
            check_ndarray(op, name, value)
            _check_dtype(op, values, first, name, kind, partners)
            _check_shape(op, first, values[first], name, kind, value)
        else:
            values[name] = _SCALARS[kind.role](op, name, kind, value)


def check_outputs(
    op: str, results_like: tuple[str, ...], kinds: dict[str, Kind], values: dict[str, Any], out: Any
) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the arrays that take the results: those of `out`, checked, or new ones.

    `results_like` names, for each result, the argument whose dtype it has.
    """
    shape = values[next(iter(kinds))].shape
    count = len(results_like)
    if out is None:
        return tuple(np.empty(shape, values[name].dtype) for name in results_like)
    names = ["out"] if count == 1 else [f"out[{index}]" for index in range(count)]
    outputs = (out,) if count == 1 else out
    if count > 1 and (not isinstance(outputs, tuple) or len(outputs) != count):
        given = f"a tuple of {len(out)}" if isinstance(out, tuple) else _type_name(out)
        raise TypeError(f"{op}: out must be a tuple of {count} arrays, got {given}")
    for name, output, like in zip(names, outputs, results_like, strict=True):
        _check_output(op, name, output, shape, like, values[like].dtype)
        _check_overlap(op, name, output, kinds, values)
    if count > 1 and np.shares_memory(*outputs):
        raise ValueError(f"{op}: {' and '.join(names)} overlap; give separate arrays")
    return tuple(outputs)


def _check_dtype(
    op: str, values: dict[str, Any], first: str, name: str, kind: Kind, partners: dict[str, str]
) -> None:
    """Check the dtype of one array against those before it; `partners` is kept by role."""
    x, value = values[first], values[name]
    given = dtype_name(op, name, value)
    like = partners.setdefault(kind.role, name) if kind.wide else name
    if like != name:
        expected, fits = f"{values[like].dtype} like {like}", value.dtype == values[like].dtype
    elif kind.wide and is_half(x.dtype):
        expected = f"{x.dtype} like {first}, or float32"
        fits = value.dtype in (x.dtype, np.float32)
    else:
        expected, fits, like = f"{x.dtype} like {first}", value.dtype == x.dtype, first
    if not fits:
        target = like if like != name else first
        raise TypeError(
            f"{op}: {name} has dtype {given}, expected {expected}; "
            f"convert it with {name}.astype({target}.dtype)"
        )


def _check_shape(op: str, first: str, x: Any, name: str, kind: Kind, value: Any) -> None:
    if name == first:
        if kind.role == "rows" and x.ndim == 0:
            raise ValueError(f"{op}: {name} has shape (), expected at least one axis")
        return
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
    try:
        np.broadcast_to(value, target)
    except ValueError:
        raise ValueError(
            f"{op}: {name} has shape {value.shape}, expected a shape that broadcasts to {target} "
            f"for {first} with shape {x.shape}"
        ) from None


def _check_output(
    op: str, name: str, out: Any, shape: tuple[int, ...], like: str, dtype: np.dtype[Any]
) -> None:
    # An array converted for the call would take the result and be lost: none is suggested.
    check_ndarray(op, name, out, hint="give an array that takes the result")
    if out.dtype != dtype:
        raise TypeError(
            f"{op}: {name} has dtype {out.dtype}, expected {dtype} like {like}; "
            f"give an array of dtype {dtype}"
        )
    if out.shape != shape:
        raise ValueError(f"{op}: {name} has shape {out.shape}, expected {shape}")
    if not out.flags.writeable:
        raise ValueError(f"{op}: {name} is read-only, expected a writable array")
    if _overlaps_itself(out):
        raise ValueError(
            f"{op}: {name} with strides {out.strides} overlaps itself, expected one place in "
            "memory for each element"
        )


def _check_overlap(op: str, name: str, out: Any, kinds: dict[str, Kind], values: Any) -> None:
    for other, kind in kinds.items():
        value = values[other]
        if not kind.is_array or value is None or not np.may_share_memory(out, value):
            continue
        if kind.is_full and _same_view(out, value):
            continue
        if np.shares_memory(out, value):
            raise ValueError(
                f"{op}: {name} overlaps {other}; expected separate memory"
                + (f", or exactly the same view as {other}" if kind.is_full else "")
            )


def check_ndarray(
    op: str, name: str, value: Any, hint: str = "convert it with numpy.asarray(...)"
) -> None:
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return
    raise TypeError(f"{op}: {name} must be a numpy.ndarray, got {_type_name(value)}; {hint}")


def _check_real(op: str, name: str, kind: Kind, value: Any) -> float:
    if not _is_real(value):
        raise TypeError(f"{op}: {name} must be a real number, got {_type_name(value)}")
    try:
        real = float(value)
    except OverflowError:  # an int that no float can hold
        real = math.inf if value > 0 else -math.inf
    if not math.isfinite(real) or real < kind.minimum:
        expected = "a finite number" + (f" >= {kind.minimum:g}" if kind.minimum == 0 else "")
        raise ValueError(f"{op}: {name} is {real!r}, expected {expected}")
    return real


def _is_real(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_, str, np.ndarray, np.timedelta64)):
        return False
    if isinstance(value, (float, int, np.floating, np.integer)):
        return True
    # A scalar of bfloat16 is none of NumPy's own floating-point types.
    return isinstance(value, np.generic) and value.dtype.name == "bfloat16"


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


def _same_view(a: Any, b: Any) -> bool:
    """Return whether two arrays hold each element at the same place."""
    start, other_start = (each.__array_interface__["data"][0] for each in (a, b))
    if a.dtype != b.dtype or a.shape != b.shape or start != other_start:
        return False
    axes = zip(a.shape, a.strides, b.strides, strict=True)
    return all(size == 1 or step == other for size, step, other in axes)


def _overlaps_itself(array: Any) -> bool:
    """Return whether two elements may share memory, by the rule that nested strides suffice."""
    extent = int(array.itemsize)
    axes = [(abs(step), size) for size, step in zip(array.shape, array.strides, strict=True)]
    for step, size in sorted(axis for axis in axes if axis[1] > 1):
        if step < extent:
            return bool(array.size)
        extent += step * (size - 1)
    return False


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
