"""Float32 weights, angles and residuals beside half inputs."""

import numpy as np
import pytest

from calls import (
    HALVES,
    LAYOUTS,
    as_out,
    as_tuple,
    bits,
    case,
    check,
    choices,
    draw_arguments,
    empty_results,
    is_sum,
    rows_of,
    shapes_for,
    sprinkle,
)
from tensor_ops.op.arguments import DTYPES

pytestmark = [
    pytest.mark.usefixtures("supported"),
    pytest.mark.ops(having=lambda op: op.mixtures),
]


@pytest.fixture(params=HALVES)
def half(request):
    return request.param


def calls(op, half, shape, case):
    """Yield natural arguments for every mixture of an op."""
    for wide in op.mixtures:
        yield wide, draw_arguments(op, shape, half, f"{case} {wide}", wide)


def run(op, backend, values, **options):
    return as_tuple(op.public(**values, **options, backend=backend))


@pytest.mark.sampled(2, "op", "half")
def test_op_samples(op, backend, half):
    for sample in op.samples:
        if half not in sample.dtypes:
            continue
        for wide in op.mixtures:
            with case(f"sample {sample.name!r} with {wide} in float32"):
                values = sample.values(op, half, wide)
                check(op, backend, values, run(op, backend, values))


@pytest.mark.sampled(2, "op", "half")
def test_shapes(op, backend, half):
    for shape in shapes_for(op):
        for kwargs in choices(op):
            for wide, values in calls(op, half, shape, f"shape {shape}"):
                with case(f"shape {shape} {kwargs} with {wide} in float32"):
                    check(op, backend, values | kwargs, run(op, backend, values | kwargs))


def test_layouts(op, backend, half):
    for layout, laid_out in LAYOUTS.items():
        for shape in ((3, 4, 70), (2, 5, 128)):
            for wide, plain in calls(op, half, shape, f"layout {layout}"):
                with case(f"layout {layout} {shape} with {wide} in float32"):
                    values = {name: laid_out(value) for name, value in plain.items()}
                    check(op, backend, values, run(op, backend, values))


def test_special_values(op, backend, half):
    for _, values in calls(op, half, (40, 34), "special values"):
        sprinkle(op, values, "special values", 0.05)
        check(op, backend, values, run(op, backend, values))


def test_results_go_where_out_says(op, backend, half):
    for _, values in calls(op, half, (3, 66), "out"):
        out = empty_results(op, values)
        results = run(op, backend, values, out=as_out(out))
        assert all(a is b for a, b in zip(results, out, strict=True))
        check(op, backend, values, results)


def test_a_result_may_replace_the_argument_that_it_is_like(op, backend, half):
    for _, plain in calls(op, half, (3, 66), "in place"):
        values = {name: value.copy() for name, value in plain.items()}
        out = [
            new if is_sum(op, like) else values[like]
            for new, like in zip(empty_results(op, values), op.results_like, strict=True)
        ]
        results = run(op, backend, values, out=as_out(out))
        assert all(a is b for a, b in zip(results, out, strict=True))
        check(op, backend, plain, results)


@pytest.mark.parametrize("n", [2, 64, 1000, 4096])
def test_rows_do_not_depend_on_the_batch(op, backend, half, n):
    for _, values in calls(op, half, (65, n), f"batch {n}"):
        whole = run(op, backend, values)
        for rows in (slice(0, 1), slice(0, 7), slice(64, 65)):
            part = {name: rows_of(op, name, value, rows) for name, value in values.items()}
            results = zip(run(op, backend, part), whole, op.results_like, strict=True)
            for got, all_rows, like in results:
                if not is_sum(op, like):
                    np.testing.assert_array_equal(bits(got), bits(all_rows[rows]))


@pytest.mark.parametrize("shape", [(3, 66), (5, 1026), (2, 40000)], ids=str)
@pytest.mark.sampled(2, "op", "half", "shape")
def test_float32_values_that_the_half_type_has_leave_the_bits(op, backend, half, shape):
    for kwargs in choices(op):
        same = draw_arguments(op, shape, half, f"bits {shape}") | kwargs
        expected = run(op, backend, same)
        for wide in op.mixtures:
            widened = {name: same[name].astype(np.float32) for name in wide}
            for got, one_dtype in zip(run(op, backend, same | widened), expected, strict=True):
                rounded = got.astype(one_dtype.dtype)
                np.testing.assert_array_equal(bits(rounded), bits(one_dtype))


def test_float32_values_are_not_rounded_to_the_half_type(op, backend, half):
    """Values between two of the half type give other results than either of them."""
    for wide in op.mixtures:
        values = draw_arguments(op, (4, 4096), half, "rounded", wide)
        rounded = {name: values[name].astype(DTYPES[half]).astype("f") for name in wide}
        got, of_rounded = (run(op, backend, each) for each in (values, values | rounded))
        assert any((bits(a) != bits(b)).any() for a, b in zip(got, of_rounded, strict=True))


def test_dtypes_that_do_not_go_together(op, backend, half):
    other = {"float16": "bfloat16", "bfloat16": "float16"}[half]
    arrays = [name for name, kind in op.kinds.items() if kind.is_array]
    same = draw_arguments(op, (4, 6), half, "dtypes")
    for name in arrays[1:]:
        for wrong in (other, "float64"):
            refuse(op, backend, same | {name: same[name].astype(DTYPES[wrong])}, name, wrong, half)
        if not op.kinds[name].wide:
            refuse(op, backend, same | {name: same[name].astype("f")}, name, "float32", half)
    in_float32 = {name: value.astype("f") for name, value in same.items()}
    for name in arrays[1:]:  # beside float32 nothing may be shorter
        refuse(op, backend, in_float32 | {name: same[name]}, name, half, "float32")
    for group in op.mixtures:
        for name in group[1:]:
            if op.kinds[name].role == op.kinds[group[0]].role:
                wrong = same | {each: in_float32[each] for each in group if each != name}
                refuse(op, backend, wrong, name, half, "float32", group[0])


def test_out_has_the_dtype_of_the_result(op, backend, half):
    for _, values in calls(op, half, (4, 6), "out"):
        good = empty_results(op, values)
        for place, right in enumerate(good):
            swapped = DTYPES[half] if right.dtype == np.float32 else np.dtype("f")
            out = [*good]
            out[place] = np.empty(right.shape, swapped)
            refuse(op, backend, values | {"out": as_out(out)}, "out", swapped.name)


@pytest.mark.ops(having=lambda op: "residual" in op.results_like)
def test_a_result_over_an_argument_of_another_dtype(op, backend, half):
    for wide, values in calls(op, half, (4, 6), "overlap"):
        if "residual" not in wide:
            continue
        over = values["residual"].view(DTYPES[half])[:, :6]
        with pytest.raises(ValueError, match="overlap"):
            run(op, backend, values, out=(over, np.empty((4, 6), np.float32)))


def refuse(op, backend, values, *says):
    with pytest.raises(TypeError) as caught:
        op.public(**values, backend=backend)
    for text in (op.name, *says):
        assert text in str(caught.value), f"{text!r} is missing in: {caught.value}"
