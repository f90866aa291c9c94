"""The kernels as GPUs run them: lanes that share a row, rows that share a group, split rows.

The device need not be a GPU for that: work-groups and barriers are the same everywhere.
"""

import numpy as np
import pytest
from reference import (
    DTYPES,
    NAMES_AND_DTYPES,
    OPS,
    as_tuple,
    calls,
    check,
    samples,
    with_argument,
)

import tensor_ops_opencl
from tensor_ops_opencl.iteration import LONGEST_WHOLE_ROW

# One lane for each row, several rows in a group, a group for each row.
SHAPES = [(300, 6), (7, 64), (2, 3, 1026)]


@pytest.fixture
def gpu(use_device):
    return use_device(kind="gpu", max_work_group_size=64)


def run(name, values):
    return tensor_ops_opencl.ops[name](**values)


@pytest.mark.parametrize(("name", "dtype"), NAMES_AND_DTYPES)
@pytest.mark.sampled(4, "name")
def test_lanes_share_rows(gpu, name, dtype):
    for shape in SHAPES:
        for values in calls(name, shape, dtype):
            check(name, values, run(name, values))


@pytest.mark.parametrize("most", [1, 256])
@pytest.mark.parametrize("name", OPS)
def test_the_device_limits_groups(use_device, name, most):
    use_device(kind="gpu", max_work_group_size=most)
    (values, *_) = calls(name, (3, 4096), "float32")
    check(name, values, run(name, values))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.sampled(2, "name", "dtype")
def test_samples(gpu, name, dtype):
    for values in samples(name, dtype):
        check(name, values, run(name, values))


@pytest.mark.parametrize(("name", "dtype"), NAMES_AND_DTYPES)
@pytest.mark.sampled(4, "name")
def test_split_rows(gpu, name, dtype):
    for values in calls(name, (2, LONGEST_WHOLE_ROW + 4098), dtype):
        check(name, values, run(name, values))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("name", with_argument("elements"))
@pytest.mark.sampled(2, "name", "kind")
def test_signs_of_zeros_where_the_device_does_not_round_quotients(use_device, name, kind):
    use_device(kind=kind, max_work_group_size=64, rounds_division=False)
    for dtype in DTYPES:
        for values in samples(name, dtype):
            check(name, values, run(name, values))


@pytest.mark.parametrize("name", OPS)
def test_a_row_has_the_same_bits_in_any_batch(gpu, name):
    for n in (130, LONGEST_WHOLE_ROW + 2):
        (values, *_) = calls(name, (5, n), "float32")
        whole = as_tuple(run(name, values))
        for row in range(5):
            part = {
                key: value[row : row + 1]
                if isinstance(value, np.ndarray) and len(value) == 5
                else value
                for key, value in values.items()
            }
            for got, all_rows in zip(as_tuple(run(name, part)), whole, strict=True):
                np.testing.assert_array_equal(got, all_rows[row : row + 1])


@pytest.mark.parametrize("name", OPS)
def test_in_place(gpu, name):
    for n in (6, LONGEST_WHOLE_ROW + 66):
        for values in calls(name, (9, n), "float32"):
            wanted = as_tuple(run(name, values))
            full = [key for key, kind in OPS[name].kinds.items() if kind.is_full]
            targets = [values[key].copy() for key in full]
            values |= dict(zip(full, targets, strict=True))
            out = tuple(targets[: len(wanted)])
            run(name, values | {"out": out if len(wanted) > 1 else out[0]})
            for got, each in zip(out, wanted, strict=True):
                np.testing.assert_array_equal(got, each)


@pytest.mark.parametrize("name", with_argument("elements"))
def test_an_element_has_the_same_bits_beside_any_other(device, name):
    """Neighbours may need another formula, and take part in the same vectors."""
    (values, *_) = calls(name, (1, 64), "float32")
    wanted = run(name, values)
    for place in range(64):
        changed = {
            key: value.copy() if isinstance(value, np.ndarray) else value
            for key, value in values.items()
        }
        changed[next(iter(changed))][0, place] = -500
        got = run(name, changed)
        np.testing.assert_array_equal(np.delete(got, place), np.delete(wanted, place))


@pytest.mark.parametrize("name", OPS)
def test_files_that_are_mapped_read_only(name, device, tmp_path):
    for values in calls(name, (16, 1024), "float32"):
        mapped = {}
        for key, value in values.items():
            if isinstance(value, np.ndarray):
                value.tofile(tmp_path / key)
                mapped[key] = np.memmap(tmp_path / key, value.dtype, "r", shape=value.shape)
        results = as_tuple(run(name, values | mapped))
        for got, each in zip(results, as_tuple(run(name, values)), strict=True):
            np.testing.assert_array_equal(got, each)
