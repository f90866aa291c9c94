"""The kinds of argument an op can take, and the supported dtypes.

An op's signature names its kinds as annotations: ``x: Rows``, ``eps: NonNegative``.

This file is also part of tensor-ops-opencl, which works without tensor-ops (decision 0022): it
imports nothing from its package.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

__all__ = [
    "DTYPES",
    "Array",
    "Declaration",
    "Elements",
    "Finite",
    "HalfRows",
    "NonNegative",
    "OptionalRowVector",
    "Outputs",
    "ParameterKind",
    "ResidualRows",
    "RowVector",
    "Rows",
    "dtype_name",
    "is_half",
    "kind_of",
    "mixtures",
    "type_name",
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


_FULL = frozenset({"elements", "rows"})
_ARRAYS = _FULL | {"row_vector", "half_rows"}


class ParameterKind(NamedTuple):
    """The kind of an argument.

    It equals no kind of another package that has this file: Python 3.11.2, for one, returns the
    same annotation for equal arguments.
    """

    # ``elements`` (an array of any shape), ``rows`` (the same with at least one axis),
    # ``row_vector`` (n values for rows of length n), ``half_rows`` (broadcasts to rows of length
    # n/2), ``real``, ``choice`` or ``flag``.
    role: str
    # Whether None is allowed.
    optional: bool = False
    # The least value of a ``real``.
    minimum: float = -math.inf
    # The values of a ``choice``.
    choices: tuple[str, ...] = ()
    # Whether the array may be float32 beside a float16 or bfloat16 `x`.
    wide: bool = False

    def __eq__(self, other: object) -> bool:
        return type(other) is ParameterKind and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    @property
    def is_array(self) -> bool:
        return self.role in _ARRAYS

    @property
    def is_full(self) -> bool:
        """True for arrays that have the result's shape."""
        return self.role in _FULL


Elements = Annotated[Any, ParameterKind("elements")]
Rows = Annotated[Any, ParameterKind("rows")]
ResidualRows = Annotated[Any, ParameterKind("rows", wide=True)]
RowVector = Annotated[Any, ParameterKind("row_vector", wide=True)]
OptionalRowVector = Annotated[Any, ParameterKind("row_vector", optional=True, wide=True)]
HalfRows = Annotated[Any, ParameterKind("half_rows", wide=True)]
NonNegative = Annotated[float, ParameterKind("real", minimum=0.0)]
Finite = Annotated[float, ParameterKind("real")]
Outputs = Any


def kind_of(annotation: Any) -> ParameterKind:
    """Return the kind that an annotation of an op's signature stands for."""
    if annotation is bool:
        return ParameterKind("flag")
    if get_origin(annotation) is Literal:
        return ParameterKind("choice", choices=get_args(annotation))
    kinds = [extra for extra in get_args(annotation) if isinstance(extra, ParameterKind)]
    if len(kinds) != 1:
        raise TypeError(f"{annotation!r} does not name one argument kind")
    return kinds[0]


class Declaration:
    """The declaration of an op, from the signature of the function that declares it.

    Attributes
    ----------
    name : str
    signature : inspect.Signature
        Without annotations.
    kinds : dict of str to ParameterKind
        The arguments in order, without `out` and `backend`.
    """

    def __init__(self, declared: Callable[..., Any]) -> None:
        annotated = inspect.signature(declared)
        parameters = list(annotated.parameters.values())
        self.name = declared.__name__
        self.signature = inspect.Signature([p.replace(annotation=p.empty) for p in parameters])
        own = [p for p in parameters if p.name not in ("out", "backend")]
        self.kinds: dict[str, ParameterKind] = {p.name: kind_of(p.annotation) for p in own}
        self._defaults = {p.name: p.default for p in own if p.default is not p.empty}
        self._defaults["out"] = None
        self._positional = [p.name for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return every argument of a call by name, defaults filled in.

        Raises
        ------
        TypeError
            For a missing, unexpected or repeated argument, as Python itself does.
        """
        given = dict(zip(self._positional, args, strict=False))
        values = {**self._defaults, **given, **kwargs}
        is_complete = len(values) == len(self.kinds) + 1 and values.keys() >= self.kinds.keys()
        if not is_complete or len(given) < len(args) or given.keys() & kwargs.keys():
            self._raise_misfit(args, kwargs)
        return values

    def _raise_misfit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise what Python itself says of a call that does not fit the signature."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{self.name}: {error}; the arguments are {self.signature}"
            raise TypeError(message) from None


def is_half(dtype: Any) -> bool:
    """Return whether a supported dtype is float16 or bfloat16."""
    return bool(dtype.itemsize == 2)


def mixtures(kinds: Mapping[str, ParameterKind]) -> list[tuple[str, ...]]:
    """Return each set of arguments that may be float32 together beside a half `x`.

    Arguments of one role, a weight and its bias or a cosine and its sine, share their dtype.

    Examples
    --------
    >>> wide = {"r": ParameterKind("rows", wide=True), "w": ParameterKind("row_vector", wide=True)}
    >>> mixtures({"x": ParameterKind("rows")} | wide)
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


def dtype_name(op: str, argument: str, array: Any, is_view: bool = False) -> str:
    """Return the name of a supported dtype, or raise TypeError naming those that are.

    `is_view` says that the array is a view of another library's, which may have no astype().
    """
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
        f"convert it {'first' if is_view else f'with {argument}.astype(...)'}"
    )


def type_name(value: Any) -> str:
    """Return what messages call the type of a value."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
