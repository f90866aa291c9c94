"""Where results go: out=, in place, between guard bands; and what they do not depend on."""

import numpy as np
import pytest

from calls import (
    LAYOUTS,
    as_out,
    as_tuple,
    bits,
    case,
    check,
    draw_arguments,
    empty_results,
    is_sum,
    rows_of,
)

pytestmark = pytest.mark.usefixtures("supported")

WRITABLE = [name for name in LAYOUTS if name != "read-only"]
GUARD = 0xA5


def guarded(shape, dtype, layout):
    """Return (raw bytes, view): an array of a layout somewhere inside guarded memory."""
    itemsize = np.dtype(dtype).itemsize
    wide = tuple(2 * size + 3 for size in shape)
    raw = np.full(int(np.prod(wide)) * itemsize + 64, GUARD, np.uint8)
    offset = 33 if layout == "unaligned" else 32
    array = raw[offset : offset + int(np.prod(wide)) * itemsize].view(dtype).reshape(wide)
    if layout == "every second element":
        return raw, array[tuple(slice(1, 1 + 2 * size, 2) for size in shape)]
    if layout == "reversed":
        return raw, array[tuple(slice(size, 0, -1) for size in shape)]
    if layout == "Fortran order":
        turned = array.reshape(wide[::-1]).T
        return raw, turned[tuple(slice(1, 1 + size) for size in shape)]
    if layout == "contiguous":
        flat = raw[offset : offset + int(np.prod(shape)) * itemsize]
        return raw, flat.view(dtype).reshape(shape)
    return raw, array[tuple(slice(1, 1 + size) for size in shape)]


@pytest.mark.sampled(3, "op", "dtype")
def test_guard_bands(op, backend, dtype):
    """Not one byte outside of `out` changes."""
    layouts = ("contiguous", "rows", "every second element", "reversed", "Fortran order")
    for layout in (*layouts, "unaligned"):
        for shape in ((1, 2), (3, 30), (2, 5, 66), (3, 258), (1, 4098)):
            with case(f"layout {layout} {shape}"):
                check_guard_bands(op, backend, dtype, layout, shape)


def check_guard_bands(op, backend, dtype, layout, shape):
    values = draw_arguments(op, shape, dtype, f"guard {shape}")
    places = [guarded(each.shape, each.dtype, layout) for each in empty_results(op, values)]
    views = [view for _, view in places]
    result = op.public(**values, out=as_out(views), backend=backend)
    check(op, backend, values, result)
    for (raw, view), got in zip(places, as_tuple(result), strict=True):
        assert got is view
        view[...] = np.full(view.nbytes, GUARD, np.uint8).view(view.dtype).reshape(view.shape)
        assert (raw == GUARD).all()


def test_out_is_an_input(op, backend, dtype):
    """A result may replace any input of its own shape, element by element."""
    full = [name for name, kind in op.kinds.items() if kind.is_full]
    for layout in WRITABLE:
        for shift in range(len(full)):
            plain = draw_arguments(op, (3, 4, 70), dtype, f"in place {layout}")
            values = {name: LAYOUTS[layout](value.copy()) for name, value in plain.items()}
            targets = [
                new if is_sum(op, like) else values[full[(shift + place) % len(full)]]
                for place, (new, like) in enumerate(
                    zip(empty_results(op, values), op.results_like, strict=True)
                )
            ]
            result = op.public(**values, out=as_out(targets), backend=backend)
            assert all(a is b for a, b in zip(as_tuple(result), targets, strict=True))
            check(op, backend, plain, result)


def test_strides_of_axes_of_length_1_do_not_matter(op, backend):
    """They lead nowhere: an output that differs in them only is its input."""
    if op.outputs > 1:
        pytest.skip("one array cannot take two results")
    values = draw_arguments(op, (5, 1, 66), "float32", "unit axis")
    plain = {name: value.copy() for name, value in values.items()}
    x = values[op.first]
    first, _, last = x.strides
    out = np.lib.stride_tricks.as_strided(x, x.shape, (first, 8 * first, last), writeable=True)
    check(op, backend, plain, op.public(**values, out=out, backend=backend))


def test_out_beside_an_input(op, backend):
    """Views that interleave without sharing an element are separate memory."""
    both = np.zeros((4, 2 * 66), np.float32)
    values = draw_arguments(op, (4, 66), "float32", "interleaved")
    both[:, ::2] = values[op.first]
    values[op.first] = both[:, ::2]
    outputs = [both[:, 1::2], *empty_results(op, values)[1:]]
    result = op.public(**values, out=as_out(outputs), backend=backend)
    check(op, backend, values, result)


def test_a_subclass_of_arrays_is_computed_as_an_array(op, backend):
    """np.matrix has another multiplication, and keeps two axes in whatever is taken of it."""
    values = draw_arguments(op, (4, 4), "float32", "subclass")
    outputs = [np.zeros_like(each) for each in empty_results(op, values)]
    op.public(**values, out=as_out(outputs), backend=backend)
    values = {k: v.view(np.matrix) if v.ndim == 2 else v for k, v in values.items()}
    of_subclass = [np.zeros_like(each) for each in outputs]
    given = [each.view(np.matrix) if each.ndim == 2 else each for each in of_subclass]
    result = op.public(**values, out=as_out(given), backend=backend)
    assert all(a is b for a, b in zip(as_tuple(result), given, strict=True))
    for one, other in zip(of_subclass, outputs, strict=True):
        np.testing.assert_array_equal(bits(one), bits(other))


def test_result_is_fresh_and_contiguous(op, backend, dtype):
    values = draw_arguments(op, (3, 4, 70), dtype, "fresh")
    values = {name: np.asfortranarray(value) for name, value in values.items()}
    for result in as_tuple(op.public(**values, backend=backend)):
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert not any(np.shares_memory(result, value) for value in values.values())


@pytest.mark.sampled(3, "op", "dtype")
def test_rows_do_not_depend_on_the_batch(op, backend, dtype):
    """The bits of a row are the same alone, in any batch, and at any address."""
    for n in (2, 64, 1000, 4096):
        values = draw_arguments(op, (257, n), dtype, f"batch {n}")
        whole = results_of_rows(op, backend, values)
        for rows in (1, 7, 255, 256):
            part = {name: rows_of(op, name, each, slice(0, rows)) for name, each in values.items()}
            for got, all_rows in zip(results_of_rows(op, backend, part), whole, strict=True):
                np.testing.assert_array_equal(bits(got), bits(all_rows[:rows]), f"{n} {rows}")
        for row in (0, 1, 100, 256):
            part = {
                name: LAYOUTS["padded rows"](rows_of(op, name, each, slice(row, row + 1)))
                for name, each in values.items()
            }
            for got, all_rows in zip(results_of_rows(op, backend, part), whole, strict=True):
                np.testing.assert_array_equal(
                    bits(got), bits(all_rows[row : row + 1]), f"{n} {row}"
                )


def results_of_rows(op, backend, values):
    """Return the results of a call that are not sums over all rows."""
    results = zip(as_tuple(op.public(**values, backend=backend)), op.results_like, strict=True)
    return [result for result, like in results if not is_sum(op, like)]


@pytest.mark.ops(having=lambda op: any(kind.role == "row_vector" for kind in op.kinds.values()))
def test_empty_output_between_elements_of_an_input(op, backend):
    """It overlaps nothing, for it has no element."""
    values = draw_arguments(op, (0, 4), "float32", "empty output")
    weight = values["weight"]
    out = [
        new if is_sum(op, like) else np.ndarray((0, 4), np.float32, weight, 4)
        for new, like in zip(empty_results(op, values), op.results_like, strict=True)
    ]
    result = op.public(**values, out=as_out(out), backend=backend)
    assert all(found is given for found, given in zip(as_tuple(result), out, strict=True))
