"""Memory of large results that is kept when freed, and how much of it."""

import numpy as np
import pytest
from pooled import LEAST, MIB, X, address, change, handler_of, result, run_in_new_process

import tensor_ops_cpp as t

pytestmark = pytest.mark.usefixtures("empty_pool")


def test_freed_memory_is_used_again():
    before = t.pool_info()
    first = result()
    place = address(first)
    del first
    second = result()
    assert address(second) == place
    assert {k: change(before)[k] for k in ("hits", "misses")} == {"hits": 1, "misses": 1}


def test_what_was_freed_last_is_used_first():
    arrays = [result() for _ in range(3)]
    places = [address(a) for a in arrays]
    while arrays:
        del arrays[0]
    assert [address(result()) for _ in range(2)] == [places[2]] * 2


def test_nearly_equal_sizes_share_blocks():
    place = address(result(1.0))
    assert address(result(0.95)) == place
    assert address(result(1.0)) == place
    assert address(result(0.5)) != place


@pytest.mark.parametrize("elements", [LEAST // 8, 20_000, 99_999, 2**18 - 1, 2**18, 2**18 + 1])
def test_blocks_are_little_larger_than_asked_for(elements):
    before = t.pool_info()
    y = t.silu(np.zeros(elements))
    assert change(before)["used_bytes"] <= y.nbytes * 1.125 + 2 * 64 * 1024


def test_small_results_are_numpys():
    before = t.pool_info()
    y = t.silu(np.zeros(LEAST // 8 - 1))
    assert handler_of(y) == "default_allocator"
    assert change(before) == dict.fromkeys(before, 0)
    assert handler_of(t.silu(np.zeros(LEAST // 8))) == "tensor_ops_cpp"


def test_zero_size():
    x = np.zeros((0, 2**20), np.float32)
    assert t.silu(x).shape == x.shape
    assert handler_of(t.silu(x)) == "default_allocator"


def test_both_results_of_add_rms_norm():
    x, weight = X.reshape(64, -1), np.ones(X.size // 64, np.float32)
    expected = t.add_rms_norm(x, x, weight, out=(np.empty_like(x), np.empty_like(x)))
    y, h = t.add_rms_norm(x, x, weight)
    places = {address(y), address(h)}
    assert len(places) == 2
    assert not np.shares_memory(y, h)
    del y, h
    y, h = t.add_rms_norm(x, x, weight)
    assert {address(y), address(h)} == places
    assert y.tobytes() == expected[0].tobytes()
    assert h.tobytes() == expected[1].tobytes()


def test_out_is_left_alone():
    before = t.pool_info()
    t.silu(X, out=np.empty_like(X))
    assert change(before) == dict.fromkeys(before, 0)


@pytest.mark.parametrize("mebibytes", [0.125, 1, 2, 3, 16, 33])
def test_results_are_aligned(mebibytes):
    assert address(result(mebibytes)) % 64 == 0


def test_used_again_results_are_right(dtype, rng):
    x = rng.normal(size=(64, 4096)).astype(dtype)
    expected = t.silu(x, out=np.empty_like(x)).tobytes()
    for _ in range(3):
        assert t.silu(x).tobytes() == expected
        result(x.nbytes / MIB, value=np.nan)  # dirties what comes next


# The limit


def test_limit_is_kept():
    t.set_pool_limit(10 * MIB)
    arrays = [result(1 + i / 7) for i in range(20)]
    while arrays:
        arrays.pop()
        assert t.pool_info()["held_bytes"] <= 10 * MIB
    assert t.pool_info()["held_bytes"] > 7 * MIB


def test_least_recently_used_goes_first():
    """Sizes of 1, 1.5 and 1.25 MiB, of which only two fit."""
    t.set_pool_limit(int(3.5 * MIB))
    first, second = result(1), result(1.5)
    del first
    del second
    result(1)  # the first has been used since
    result(1.25)
    before = t.pool_info()
    assert before["held_blocks"] == 2
    kept = [result(1), result(1.25)]
    assert change(before)["hits"] == 2
    result(1.5)
    assert change(before)["misses"] == 1
    del kept


def test_what_is_larger_than_the_limit_is_not_kept():
    t.set_pool_limit(4 * MIB)
    small = result(1)
    del small
    large = result(8)
    assert handler_of(large) == "default_allocator"
    del large
    assert t.pool_info()["held_blocks"] == 1


def test_a_lower_limit_holds_at_once():
    arrays = [result() for _ in range(4)]
    del arrays
    assert t.pool_info()["held_blocks"] == 4
    t.set_pool_limit(5 * MIB // 2)
    assert t.pool_info()["held_blocks"] == 2
    assert t.pool_info()["limit"] == 5 * MIB // 2


def test_limit_zero_turns_the_pool_off():
    alive = result()
    t.set_pool_limit(0)
    assert handler_of(result()) == "default_allocator"
    assert np.all(alive == 0)
    del alive
    assert t.pool_info()["held_bytes"] == t.pool_info()["limit"] == 0


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, np.float64(2)])
def test_limit_of_a_wrong_type(wrong):
    with pytest.raises(TypeError, match=r"set_pool_limit: bytes must be an int, got \w+"):
        t.set_pool_limit(wrong)


def test_negative_limit():
    with pytest.raises(ValueError, match="set_pool_limit: bytes must be at least 0, got -1"):
        t.set_pool_limit(-1)


@pytest.mark.parametrize("huge", [2**63 - 1, 2**64, 10**30])
def test_huge_limit(huge):
    t.set_pool_limit(huge)
    assert t.pool_info()["limit"] == 2**63 - 1
    result()
    assert t.pool_info()["held_blocks"] == 1


def test_limit_of_a_numpy_integer():
    t.set_pool_limit(np.int32(5 * MIB))
    assert t.pool_info()["limit"] == 5 * MIB


def test_trim_says_how_much():
    arrays = [result(), result(2)]
    arrays.clear()
    held = t.pool_info()["held_bytes"]
    assert held >= 3 * MIB
    assert t.trim_pool() == held
    assert t.trim_pool() == 0
    assert t.pool_info()["held_blocks"] == 0


def test_info_prints_a_line_per_key():
    info = t.pool_info()
    assert isinstance(info, dict)
    assert len(str(info).splitlines()) == len(info)
    assert f"limit        {64 * MIB}" in str(info)


LIMIT = "import tensor_ops_cpp as t; print(t.pool_info()['limit'])"


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("0", 0),
        ("1000000", 1000000),
        ("64K", 64 * 2**10),
        ("512M", 512 * MIB),
        ("512MiB", 512 * MIB),
        ("2G", 2**31),
        ("1TiB", 2**40),
        ("99999999999999999999", 2**63 - 1),
        ("9999999999T", 2**63 - 1),
    ],
)
def test_limit_of_the_environment(setting, limit):
    done = run_in_new_process(LIMIT, TENSOR_OPS_CPP_POOL_LIMIT=setting)
    assert int(done.stdout) == limit
    assert done.stderr == ""


def test_default_limit_is_a_fraction_of_the_memory():
    done = run_in_new_process(LIMIT, TENSOR_OPS_CPP_POOL_LIMIT="")
    assert int(done.stdout) == min(t.info()["max_memory"] // 16, 4 * 2**30)
    assert done.stderr == ""


@pytest.mark.parametrize("setting", ["much", "-1", "1.5G", "5MB", "10 M", "0x10", "5k", "12Q", " "])
def test_wrong_limit_of_the_environment_warns(setting):
    done = run_in_new_process(LIMIT, TENSOR_OPS_CPP_POOL_LIMIT=setting)
    default = min(t.info()["max_memory"] // 16, 4 * 2**30)
    assert int(done.stdout) == default
    assert f"RuntimeWarning: TENSOR_OPS_CPP_POOL_LIMIT is '{setting}', which is not" in done.stderr
    assert done.stderr.count("Warning") == 1
    assert str(default) in done.stderr
