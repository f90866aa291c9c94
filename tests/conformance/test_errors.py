"""Bad calls raise the same exception on every backend, before anything is written."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from calls import as_out, as_tuple, bits, case, choices, draw_arguments, empty_results
from tensor_ops.op.arguments import DTYPES

pytestmark = pytest.mark.usefixtures("supported")

SHAPE = (4, 6)
SCALARS = [1.0, 1, np.float32(1), np.float64(1), np.int64(1), ml_dtypes.bfloat16(1)]


def refuse(op, backend, error, values, *says):
    """Assert that a call raises `error`, naming the op and each text of `says`."""
    with pytest.raises(error) as caught:
        op.public(**values, backend=backend)
    message = str(caught.value)
    assert type(caught.value) is error, message
    for text in (op.name, *says):
        assert text in message, f"{text!r} is missing in: {message}"


def natural(op, shape=SHAPE, dtype="float32"):
    return draw_arguments(op, shape, dtype, "errors")


def array_names(op):
    return [name for name, kind in op.kinds.items() if kind.is_array]


def full_out(op, out):
    """Return `out` as the op wants it, with good arrays in the other places."""
    return as_out([out, *empty_results(op, natural(op))[1:]])


def test_unsupported_dtype(op, backend):
    for dtype_text in ("i4", "u1", "?", "c8", "O", "g", "U1", "M8[s]", "V4"):
        for name in array_names(op):
            with case(f"{name} of {dtype_text}"):
                values = natural(op)
                values[name] = np.zeros(values[name].shape, dtype_text)
                says = (*DTYPES,) if name == op.first else ()
                refuse(op, backend, TypeError, values, name, *says)


def test_dtypes_that_differ(op, backend):
    for name in array_names(op)[1:]:
        values = natural(op)
        values[name] = values[name].astype(np.float64)
        refuse(op, backend, TypeError, values, name, "float64", "float32")


def test_byte_order_of_another_machine(op, backend):
    for name in array_names(op):
        values = natural(op)
        values[name] = values[name].astype(">f4")
        refuse(op, backend, TypeError, values, name, "byte order")


def test_not_an_array(op, backend):
    for wrong in ([1.0, 2.0], 1.0, "x", None, np.float32(1), np.ma.zeros(SHAPE, np.float32)):
        for name, kind in op.kinds.items():
            if not kind.is_array or (wrong is None and kind.optional):
                continue
            refuse(op, backend, TypeError, natural(op) | {name: wrong}, name, type(wrong).__name__)


def test_wrong_shapes(op, backend):
    for name in array_names(op)[1:]:
        good = natural(op)[name]
        scalar = [] if op.kinds[name].role == "half_rows" else [()]  # which broadcasts
        for shape in (
            *scalar,
            (0,),
            (1, 1, 1, 7),
            (*good.shape, 5),
            (*good.shape[:-1], good.shape[-1] - 1),
            (*good.shape[:-1], good.shape[-1] + 1),
            *([] if op.kinds[name].role == "half_rows" else [good.shape[1:]]),
        ):
            values = natural(op) | {name: np.zeros(shape, np.float32)}
            refuse(op, backend, ValueError, values, name, str(shape), str(good.shape))


@pytest.mark.ops(having=lambda op: any(kind.role == "rows" for kind in op.kinds.values()))
def test_no_axis(op, backend):
    values = natural(op) | {op.first: np.array(1, np.float32)}
    refuse(op, backend, ValueError, values, op.first, "axis")


@pytest.mark.ops(having=lambda op: any(kind.role == "half_rows" for kind in op.kinds.values()))
def test_odd_length(op, backend):
    values = natural(op) | {op.first: np.zeros((4, 7), np.float32)}
    refuse(op, backend, ValueError, values, op.first, "(4, 7)", "even")


def test_bad_out(op, backend):
    read_only = np.empty(SHAPE, np.float32)
    read_only.flags.writeable = False
    itself = np.lib.stride_tricks.as_strided(np.empty(6, np.float32), SHAPE, (0, 4), writeable=True)
    overlapping_rows = np.lib.stride_tricks.as_strided(
        np.empty(40, np.float32), SHAPE, (8, 4), writeable=True
    )
    for out, error, says in (
        ([1.0], TypeError, ("list",)),
        (np.empty(SHAPE, np.float64), TypeError, ("float64", "float32")),
        (np.empty(SHAPE, ">f4"), TypeError, (">f4",)),
        (np.empty((6, 4), np.float32), ValueError, ("(6, 4)", "(4, 6)")),
        (np.empty((1, 4, 6), np.float32), ValueError, ("(1, 4, 6)", "(4, 6)")),
        (read_only, ValueError, ("read-only",)),
        (itself, ValueError, ("overlaps itself",)),
        (overlapping_rows, ValueError, ("overlaps itself",)),
    ):
        refuse(op, backend, error, natural(op) | {"out": full_out(op, out)}, "out", *says)


def test_out_overlaps_an_input(op, backend):
    for name in array_names(op):
        memory = np.zeros(64, np.float32)
        good = natural(op)[name]
        value = memory[: good.size].reshape(good.shape)
        value[...] = good
        out = memory[1:25].reshape(SHAPE)
        before = memory.copy()
        refuse(
            op, backend, ValueError, natural(op) | {name: value, "out": full_out(op, out)},
            "out", name, "overlap",
        )  # fmt: skip
        np.testing.assert_array_equal(memory, before)


@pytest.mark.ops(having=lambda op: op.outputs > 1)
def test_outputs_overlap_each_other(op, backend):
    good = empty_results(op, natural(op))
    for place, other in itertools.combinations(range(op.outputs), 2):
        memory = np.zeros(48, np.float32)
        first, second = good[place], good[other]
        out = [*good]
        out[place] = memory[: first.size].reshape(first.shape)
        out[other] = memory[first.size - 1 :][: second.size].reshape(second.shape)
        refuse(op, backend, ValueError, natural(op) | {"out": tuple(out)}, "overlap")
        if first.shape == second.shape:
            out[other] = out[place]
            refuse(op, backend, ValueError, natural(op) | {"out": tuple(out)}, "overlap")
    same = good[0]
    for wrong in (same, (same,), (*good, same), good):
        refuse(op, backend, TypeError, natural(op) | {"out": wrong}, "tuple")


def test_bad_scalars(op, backend):
    for name, kind in op.kinds.items():
        if kind.role == "real":
            wrong = [("1", TypeError), (None, TypeError), (True, TypeError), (1j, TypeError)]
            wrong += [(np.nan, ValueError), (np.inf, ValueError), ([1.0], TypeError)]
            wrong += [(-1.0, ValueError), (-1e-6, ValueError)] if kind.minimum == 0 else []
        elif kind.role == "choice":
            wrong = [("nearest", ValueError), (1, TypeError), (None, TypeError), (True, TypeError)]
        elif kind.role == "flag":
            wrong = [("yes", TypeError), (1, TypeError), (None, TypeError)]
        else:
            continue
        for value, error in wrong:
            # A wrong type is named; of a wrong value, what it is, and what there is to choose from.
            is_type = error is TypeError
            says = [type(value).__name__] if is_type else [repr(value), *map(repr, kind.choices)]
            refuse(op, backend, error, natural(op) | {name: value}, name, *says)


def test_scalars_of_every_kind_are_taken(op, backend):
    for name, kind in op.kinds.items():
        if kind.role == "real":
            first, *others = (
                op.public(**natural(op), **{name: value}, backend=backend) for value in SCALARS
            )
            for other in others:
                for a, b in zip(as_tuple(first), as_tuple(other), strict=True):
                    np.testing.assert_array_equal(bits(a), bits(b))


def test_whole_numbers_that_no_float_holds(op, backend):
    for name, kind in op.kinds.items():
        if kind.role == "real":
            for value in (10**400, -(10**400)):
                refuse(op, backend, ValueError, natural(op) | {name: value}, name, "finite")


def test_calls_that_python_refuses(op, backend):
    values = natural(op)
    args = tuple(values.values())
    for call in (
        lambda: op.public(backend=backend),
        lambda: op.public(*args, no_such_argument=1, backend=backend),
        lambda: op.public(*args, **{op.first: args[0]}, backend=backend),
        lambda: op.public(*args, *([1.0] * 9), backend=backend),
        lambda: op.public(*args[:-1], no_such_argument=args[-1], backend=backend),
        lambda: op.public(*args, num_threads=1, backend=backend),  # cpp's own, not the op's
    ):
        with pytest.raises(TypeError, match=rf"{op.name}.* argument.*backend=None\)$"):
            call()


def test_positional_and_keyword_calls_agree(op, backend):
    for kwargs in choices(op):
        values = natural(op) | kwargs
        positional = [values[name] for name in op.kinds if name in values and name not in kwargs]
        named = op.public(**values, backend=backend)
        mixed = op.public(*positional, **kwargs, backend=backend)
        for a, b in zip(as_tuple(named), as_tuple(mixed), strict=True):
            np.testing.assert_array_equal(bits(a), bits(b))


def test_messages_say_what_to_do(op, backend):
    """Not only that something is wrong: the word "expected" or a way to mend it."""
    with pytest.raises(TypeError) as caught:
        op.public(**natural(op) | {op.first: [1]}, backend=backend)
    assert re.search(r"expected|numpy\.asarray", str(caught.value))
