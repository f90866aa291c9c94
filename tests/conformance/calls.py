"""Calls to make of any op: layouts, special values, choices; and the judging of their results."""

import contextlib
import itertools

import ml_dtypes
import numpy as np

from tensor_ops.op import accuracy
from tensor_ops.op.samples import Draw, arguments


def _backing(array, shape, pick):
    """Return a view chosen by `pick` out of a larger array, holding the values of `array`."""
    view = pick(np.zeros(shape, array.dtype))
    view[...] = array
    return view


def _unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def _read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


# Each gives an array with the same values, laid out in its own way.
LAYOUTS = {
    "contiguous": np.ascontiguousarray,
    "padded rows": lambda a: _backing(
        a, (*a.shape[:-1], a.shape[-1] + 3), lambda wide: wide[..., 1:-2]
    ),
    "every second element": lambda a: _backing(
        a, (*a.shape[:-1], 2 * a.shape[-1]), lambda wide: wide[..., ::2]
    ),
    "every second row": lambda a: _backing(
        a, (*(2 * size for size in a.shape[:-1]), a.shape[-1]), lambda wide: wide[_thinned(a)]
    ),
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "reversed rows": lambda a: a[::-1].copy()[::-1],
    "Fortran order": np.asfortranarray,
    "axes swapped": lambda a: np.swapaxes(np.swapaxes(a, 0, -1).copy(), 0, -1),
    "unaligned": _unaligned,
    "read-only": _read_only,
}

SHAPES = [
    (1,),
    (2,),
    (1, 2),
    (3, 6),
    (2, 3, 2, 10),
    (5, 64),
    (3, 130),
    (2, 1, 1026),
    (4, 4096),
    (1, 40000),
    (300, 16),
    (0,),
    (0, 4),
    (3, 0),
]


HALVES = ("float16", "bfloat16")


@contextlib.contextmanager
def case(name):
    """Say of an error in which of the cases of a test it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case {name}")
        raise


def choices(op):
    """Return every combination of an op's choices and flags, as keyword arguments."""
    options = {
        name: kind.choices if kind.role == "choice" else (False, True)
        for name, kind in op.kinds.items()
        if kind.role in ("choice", "flag")
    }
    return [
        dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())
    ]


def fits(op, shape):
    """Return whether rows of this shape are allowed for an op."""
    halves = any(kind.role == "half_rows" for kind in op.kinds.values())
    return not (halves and shape[-1] % 2)


def shapes_for(op):
    """Return SHAPES, with rows of even length where an op needs that."""
    return [shape if fits(op, shape) else (*shape[:-1], shape[-1] + 1) for shape in SHAPES]


def is_unary(op):
    """Return whether an op takes one array, element by element."""
    return [kind.role for kind in op.kinds.values() if kind.is_array] == ["elements"]


def draw_arguments(op, shape, dtype, case, wide=()):
    """Return natural arguments, seeded by the name of the case; those in `wide` are float32."""
    return arguments(op, shape, Draw(dtype, f"{op.name}/{case}"), wide)


def special_values(dtype):
    """Return the values at the edges of a dtype."""
    info = ml_dtypes.finfo(dtype)
    # Beyond this the reference, in float64 itself, overflows on the way to a finite result.
    largest = min(float(info.max), 1e150)
    edges = [0.0, 1.0, largest, float(info.smallest_normal), float(info.smallest_subnormal)]
    return np.array([*edges, *(-edge for edge in edges), np.inf, -np.inf, np.nan])


def sprinkle(op, values, case, share=0.1):
    """Put special values into a share of the places of every array, in place.

    Weights get zeros and NaN only: one that is infinite, or dwarfs the others, brings out of an
    element digits that its row has already lost (see `Bound`).
    """
    random = np.random.default_rng(len(case))
    for name, value in values.items():
        special = special_values(value.dtype)
        if op.kinds[name].role == "row_vector":
            special = np.array([0.0, np.nan])
        chosen = random.random(value.shape) < share
        edges = random.choice(special, value.shape)
        value[chosen] = edges.astype(value.dtype)[chosen]
    return values


def reference(op, values):
    """Return the op's body on the same values in float64, as a tuple of arrays."""
    return as_tuple(op.numpy(**in_float64(values)))


def in_float64(values):
    """Return arguments by name with their arrays in float64."""
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        return {
            name: value.astype(np.float64) if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def check(op, backend, values, result):
    """Assert that a result has the right shape, dtypes, and error within the op's bound."""
    expected = reference(op, values)
    assert len(as_tuple(result)) == op.outputs
    terms = op.terms_of(in_float64(values))
    results = zip(as_tuple(result), expected, terms, op.results_like, strict=True)
    for index, (got, wanted, of_terms, like) in enumerate(results):
        assert isinstance(got, np.ndarray)
        assert got.dtype == values[like].dtype
        bound = op.bound(got.dtype.name, backend)
        measured = accuracy.measure(got, wanted, bound, of_terms)
        assert measured.within, (
            f"result {index} {measured.problem or f'has error {measured.error:.3g}'}, "
            f"allowed are {measured.limit:.3g} ({bound})"
        )


def is_sum(op, like):
    """Return whether a result that is like an argument is a sum over all rows."""
    return not op.kinds[like].is_full


def empty_results(op, values):
    """Return new arrays for the results of a call."""
    return [np.empty(values[like].shape, values[like].dtype) for like in op.results_like]


def as_out(results):
    """Return the arrays as `out` wants them."""
    return tuple(results) if len(results) > 1 else results[0]


def rows_of(op, name, value, rows):
    """Return the rows of an argument that belong to the given rows of the result."""
    return value if op.kinds[name].role == "row_vector" else value[rows]


def bits(array):
    """Return the bit patterns of an array, for comparisons in which NaN equals NaN."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _thinned(array):
    return (*(slice(None, None, 2) for _ in array.shape[:-1]), slice(None))
