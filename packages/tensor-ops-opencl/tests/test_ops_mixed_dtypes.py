"""Float32 weights, biases, angles and residuals beside arrays of a half type."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from reference import OPS, as_tuple, calls, check, nightly_half, with_argument

import tensor_ops_opencl
from tensor_ops_opencl import op as declarations
from tensor_ops_opencl.iteration import LONGEST_WHOLE_ROW

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
MIXED = [name for name, op in OPS.items() if op.mixtures]
# Rows of less than a vector, of several, whole ones of a GPU's group, and one that is split.
SHAPES = [(7, 2), (3, 4, 66), (2, 3, 1026), (2, LONGEST_WHOLE_ROW + 66)]

pytestmark = pytest.mark.parametrize("half", HALVES)


@pytest.fixture(params=["cpu", "gpu", "staged", "streamed"])
def laid_out(request, use_device):
    """The device as a CPU and a GPU, with memory of its own, and with no cache for results.

    Gives the shapes to try there: for groups of a GPU each length takes kernels of its own, which
    are slow to compile.
    """
    changes = {
        "cpu": {},
        "gpu": {"kind": "gpu", "max_work_group_size": 64},
        "staged": {"shares_memory": False},
        "streamed": {"cache_size": 0},
    }
    given = request.node.callspec.params
    sampled = given["half"] != nightly_half(given["name"])
    if request.param == "gpu" and not (sampled or request.config.getoption("--nightly")):
        pytest.skip("takes minutes: --nightly runs it")
    use_device(**changes[request.param])
    return SHAPES[1::2] if request.param == "gpu" else SHAPES


@pytest.fixture
def queue(device):
    import pyopencl as cl

    context = cl.Context([device.handle])
    yield cl.CommandQueue(context)
    del context  # held until here: Intel's runtime forgets a context that only its queues hold


@pytest.fixture
def to_device(queue):
    import pyopencl.array as cl_array

    return lambda array: cl_array.to_device(queue, np.ascontiguousarray(array))


def run(name, values, **out):
    return as_tuple(tensor_ops_opencl.ops[name](**values, **out))


def mixed_calls(name, shape, half):
    """Yield natural calls for every mixture and choice of an op."""
    for wide in OPS[name].mixtures:
        yield from calls(name, shape, half, wide)


def on_arrays(change, values):
    return {
        key: change(value) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }


def out_of(arrays):
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS = {
    "every second element": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "Fortran order": np.asfortranarray,
    "unaligned": unaligned,
    "read-only": read_only,
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.sampled(2, "name", "half", "laid_out")
def test_bounds_and_bits(name, half, laid_out):
    """Results are within the bounds; float32 values that the half type has leave the bits."""
    for shape in laid_out:
        for values in mixed_calls(name, shape, half):
            check(name, values, run(name, values))
        for values in calls(name, shape, half):
            wanted = run(name, values)
            for wide in OPS[name].mixtures:
                widened = {key: values[key].astype(np.float32) for key in wide}
                for got, each in zip(run(name, values | widened), wanted, strict=True):
                    assert got.astype(each.dtype).tobytes() == each.tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MIXED)
def test_layouts(name, layout, half, device):
    for values in mixed_calls(name, (3, 4, 66), half):
        wanted = run(name, values)
        for got, each in zip(run(name, on_arrays(LAYOUTS[layout], values)), wanted, strict=True):
            assert got.tobytes() == each.tobytes()


@pytest.mark.parametrize("name", with_argument("row_vector"))
def test_arrays_that_repeat_one_element(name, half, device):
    for values in mixed_calls(name, (4, 66), half):
        repeated = on_arrays(lambda a: np.broadcast_to(a.ravel()[0], a.shape), values)
        wanted = run(name, on_arrays(np.copy, repeated))
        for got, each in zip(run(name, repeated), wanted, strict=True):
            assert got.tobytes() == each.tobytes()


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.sampled(2, "name", "half", "laid_out")
def test_in_place(name, half, laid_out):
    for shape in laid_out[1::2]:
        for values in mixed_calls(name, shape, half):
            wanted = run(name, values)
            targets = {like: values[like].copy() for like in OPS[name].results_like}
            results = run(name, values | targets, out=out_of(list(targets.values())))
            for got, target, each in zip(results, targets.values(), wanted, strict=True):
                assert got is target
                assert got.tobytes() == each.tobytes()


@pytest.mark.parametrize("name", MIXED)
def test_device_arrays(name, half, device, to_device):
    for shape in ((3, 4, 66), (2, LONGEST_WHOLE_ROW + 66)):
        for values in mixed_calls(name, shape, half):
            wanted = run(name, values)
            arrays = on_arrays(to_device, values)
            for got, each in zip(run(name, arrays), wanted, strict=True):
                assert got.dtype == each.dtype
                assert got.get().tobytes() == each.tobytes()
            targets = [arrays[like] for like in OPS[name].results_like]
            run(name, arrays, out=out_of(targets))
            for target, each in zip(targets, wanted, strict=True):
                assert target.get().tobytes() == each.tobytes()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_dtypes_that_do_not_go_together(name, half, on_device, device, request):
    place = request.getfixturevalue("to_device") if on_device else np.asarray
    (values, *_) = calls(name, (4, 6), half)
    values.pop("approximate", None)
    first, *others = [key for key, value in values.items() if isinstance(value, np.ndarray)]
    (other_half,) = (dtype for each, dtype in HALVES.items() if each != half)

    def refused(changed, *says):
        with pytest.raises(TypeError) as caught:
            run(name, on_arrays(place, values | changed))
        for text in (f"{name}: ", *says):
            assert text in str(caught.value)

    in_float32 = {key: values[key].astype(np.float32) for key in (first, *others)}
    for key in others:
        for wrong in (other_half, np.dtype(np.float64)):
            if OPS[name].kinds[key].role != "row_vector" or key == "weight":
                says = f"{key} has dtype {wrong}, expected {half} like"
                refused({key: values[key].astype(wrong)}, says)
        refused(in_float32 | {key: values[key]}, f"{key} has dtype {half}, expected float32 like")
    for one, pair in itertools.permutations(others, 2):
        if OPS[name].kinds[one].role == OPS[name].kinds[pair].role and one < pair:
            says = f"expected float32 like {one}; convert it with {pair}.astype({one}.dtype)"
            if others.index(one) < others.index(pair):
                refused({one: in_float32[one]}, f"{pair} has dtype {half}", says)


@pytest.mark.parametrize("on_device", [False, True])
def test_out_that_does_not_fit(half, on_device, device, request):
    place = request.getfixturevalue("to_device") if on_device else np.asarray
    (values,) = calls("add_rms_norm", (4, 6), half, ("residual",))
    arrays = on_arrays(place, values)

    def refused(error, says, *out):
        with pytest.raises(error) as caught:
            run("add_rms_norm", arrays, out=out)
        assert says in str(caught.value)
        assert "astype" not in str(caught.value)
        assert "copy" not in str(caught.value)

    y, h = (place(np.zeros((4, 6), dtype)) for dtype in (HALVES[half], np.float32))
    says = (
        f"out[1] has dtype {half}, expected float32 like residual; give an array of dtype float32"
    )
    refused(TypeError, says, y, place(np.zeros((4, 6), HALVES[half])))
    says = f"out[0] has dtype float32, expected {half} like x; give an array of dtype {half}"
    refused(TypeError, says, place(np.zeros((4, 6), np.float32)), h)
    # The residual's first bytes, as many as y has.
    over = arrays["residual"].reshape(24)[:12].view(HALVES[half]).reshape(4, 6)
    refused(ValueError, "out[0] overlaps residual", over, h)


def test_every_wide_role_has_an_option(half):
    roles = {kind.role for name in MIXED for kind in OPS[name].kinds.values() if kind.wide}
    assert roles == declarations.WIDE_OPTIONS.keys()
