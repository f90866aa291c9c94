"""The emulated tensor cores add as others have measured those of GPUs."""

import math
from enum import IntEnum

import ml_dtypes
import numpy as np
import pytest
from emulated import CudaError
from emulated_kernels import AMPERE, HOPPER, VOLTA, unsanitized

pytestmark = unsanitized

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
LEAST = {"f16": -14, "bf16": -126, "f32": -126}  # exponents of normal numbers
RULES = {"Hopper": HOPPER, "Ampere": AMPERE, "Volta": VOLTA}


def multiply(kernels, name, a, b, sums):
    """Return sums + a b, of the warp."""
    on_device = [kernels.array(each) for each in (a, np.ascontiguousarray(b.T), sums)]
    kernels.run(f"mma_{name}", *on_device)
    return kernels.values(on_device[2], sums.size, sums.dtype).reshape(sums.shape)


def test_int8_is_exact(kernels, rng):
    for _ in range(10):
        a = rng.integers(-128, 128, (16, 32), np.int8)
        b = rng.integers(-128, 128, (32, 8), np.int8)
        sums = rng.integers(-(2**31), 2**31, (16, 8), np.int32)  # whose sums wrap around
        right = sums + a.astype(np.int32) @ b.astype(np.int32)
        assert (multiply(kernels, "s8", a, b, sums) == right).all()


def exponent(x, name):
    return max(math.frexp(x)[1] - 1, LEAST[name])


def cut_off(x):
    """Return a float as float32, rounded towards 0."""
    nearest = np.float32(x)
    return float(np.nextafter(nearest, np.float32(0)) if abs(float(nearest)) > abs(x) else nearest)


def added(total, a, b, name, extra_bits):
    """Return what tensor cores make of a sum and of products that they add at once."""
    numbers = [
        (x * y, exponent(x, name) + exponent(y, name)) for x, y in zip(a, b, strict=True) if x * y
    ]
    if total:
        numbers.append((total, exponent(total, "f32")))
    digit = 2.0 ** (max((e for _, e in numbers), default=0) - 23 - extra_bits)
    return cut_off(sum(int(number / digit) for number, _ in numbers) * digit)


def right_sums(a, b, sums, name, rule):
    products, extra_bits = rule
    right = np.empty_like(sums)
    for row, column in np.ndindex(sums.shape):
        total = float(sums[row, column])
        for first in range(0, 16, products):
            part = slice(first, first + products)
            of_a, of_b = a[row, part].astype(float), b[part, column].astype(float)
            total = added(total, of_a.tolist(), of_b.tolist(), name, extra_bits)
        right[row, column] = total
    return right


def drawn(rng, name, shape):
    """Return numbers of many magnitudes, some of them subnormal, and zeros."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)
    values[rng.random(shape) < 0.1] = 0
    values = values.astype(FLOATS[name])
    values[rng.random(shape) < 0.1] = np.finfo(np.float16).smallest_subnormal * 5
    return values


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_cut_off_as_on_a_gpu(name, rule, kernels, rng):
    kernels.emulatedSetSumRule(*RULES[rule])
    for magnitude in (0, 1e-3, 1, 1e4):
        a, b = drawn(rng, name, (16, 16)), drawn(rng, name, (16, 8))
        sums = (rng.standard_normal((16, 8)) * magnitude).astype(np.float32)
        found = multiply(kernels, name, a, b, sums)
        assert (found == right_sums(a, b, sums, name, RULES[rule])).all()


# The rest of a sum of 1 and 16 products of 2^-23, 2^-24, 2^-25 and 2^-26 by each rule, in units of
# 2^-23.
LEFT = {"Hopper": [16, 8, 4, 0], "Ampere": [16, 8, 0, 0], "Volta": [16, 0, 0, 0]}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", FLOATS)
def test_the_extra_bits_of_products_are_added(name, rule, kernels):
    kernels.emulatedSetSumRule(*RULES[rule])
    sums = np.ones((16, 8), np.float32)
    for exponent_, left in zip((-23, -24, -25, -26), LEFT[rule], strict=True):
        a = np.full((16, 16), 2.0 ** (exponent_ + 12), FLOATS[name])
        b = np.full((16, 8), 2.0**-12, FLOATS[name])
        for sign in (1, -1):
            found = multiply(kernels, name, a, sign * b, sign * sums)
            assert (found == sign * (1 + left * 2.0**-23)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_is_cut_off_and_not_rounded(sign, kernels):
    a, b = np.zeros((16, 16), FLOATS["bf16"]), np.zeros((16, 8), FLOATS["bf16"])
    a[:, 7], b[7] = 1.5, sign * 2.0**-23
    found = multiply(kernels, "bf16", a, b, np.full((16, 8), sign, np.float32))
    assert (found == sign * (1 + 2.0**-23)).all()


@pytest.mark.parametrize("rule", [(0, 2), (5, 2), (32, 2), (16, -1), (16, 6)])
def test_rules_that_no_instruction_has_are_refused(rule, kernels):
    with pytest.raises(CudaError, match="cudaErrorInvalidValue"):
        kernels.emulatedSetSumRule(*rule)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_stays_in_its_row(name, kernels):
    a, b = np.ones((16, 16), FLOATS[name]), np.ones((16, 8), FLOATS[name])
    a[3, 5] = np.nan
    found = multiply(kernels, name, a, b, np.zeros((16, 8), np.float32))
    assert np.isnan(found[3]).all()
    assert (np.delete(found, 3, axis=0) == 16).all()


@pytest.mark.parametrize("name", FLOATS)
def test_infinity_is_that_of_its_row_and_column(name, kernels):
    a, b = np.ones((16, 16), FLOATS[name]), np.ones((16, 8), FLOATS[name])
    a[3, 5], b[9, 2] = np.inf, -np.inf
    sums = np.zeros((16, 8), np.float32)
    sums[7, 7] = np.inf
    found = multiply(kernels, name, a, b, sums)
    with np.errstate(invalid="ignore"):
        right = sums + a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(found, right)
    assert np.isnan(found[3, 2])


@pytest.mark.parametrize("rule", RULES)
def test_what_float32_cannot_hold_is_infinite(rule, kernels):
    """Also where the products that are added afterwards are finite."""
    kernels.emulatedSetSumRule(*RULES[rule])
    a, b = np.zeros((16, 16), FLOATS["bf16"]), np.ones((16, 8), FLOATS["bf16"])
    a[2, :2], a[5, :2] = 2.0**127, -(2.0**127)
    a[:, 15] = 1
    found = multiply(kernels, "bf16", a, b, np.zeros((16, 8), np.float32))
    assert (found[2] == np.inf).all()
    assert (found[5] == -np.inf).all()
    assert (np.delete(found, [2, 5], axis=0) == 1).all()


def test_a_part_of_a_warp_is_an_error(kernels):
    with pytest.raises(CudaError, match="mma by a part of a warp"):
        kernels.run("mma_of_half_a_warp", *(kernels.array(np.zeros(128, np.uint32)),) * 3)


class Instead(IntEnum):
    """As the kernel `multiply_in_part` has it: what half of the lanes do instead."""

    NOTHING = 0
    ANOTHER_MMA = 1
    MMA_OF_FLOATS = 2
    SHUFFLE = 3
    WARP_BARRIER = 4


DIVERGENT = {
    Instead.NOTHING: "mma by a part of a warp",
    Instead.ANOTHER_MMA: r"at different waits: block 0: .* at a function of the warp \(line \d+\)",
    Instead.MMA_OF_FLOATS: "lanes of a warp are in different functions",
    Instead.SHUFFLE: "lanes of a warp are in different functions",
    Instead.WARP_BARRIER: "lanes of a warp are in different functions",
}


@pytest.mark.parametrize("instead", Instead)
def test_a_divergent_warp_is_an_error(instead, kernels):
    with pytest.raises(CudaError, match=DIVERGENT[instead]):
        kernels.run("mma_in_part", instead, kernels.array(np.zeros(32, np.int32)))
