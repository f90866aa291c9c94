"""The matrix products of the decode executor against float64, with the bounds of product.h."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from weight_blocks import (
    BLOCKS,
    EXPONENTS,
    INTEGER_BLOCKS,
    INTEGERS,
    NUMBERS,
    random_weight,
    scales_of,
    set_half,
    set_scale,
    set_to_one,
    values_of_folders,
)

from tensor_ops_cpp import _native

gguf = pytest.importorskip("gguf")

VARIANTS = _native.decode_product_variants()
TERMS = {"int8": 1, "int8x2": 2}
ROUNDING = 2.0**-24
# Errors of an activation, in units of the largest of its block / 127; product.h states them.
ACTIVATION_ERROR = {"float32": 0.0, "int8": 0.501, "int8x2": 0.002}

PRODUCTS = [(f, "float32") for f in (*NUMBERS, *BLOCKS)] + [("bf16", "bfloat16")]
PRODUCTS += [(f, a) for f in INTEGER_BLOCKS for a in TERMS]
every_product = pytest.mark.parametrize(("name", "activations"), PRODUCTS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def whole(name, columns):
    """The columns of as many blocks as 32 columns are there."""
    return columns * BLOCKS[name][0] // 32 if name in BLOCKS else columns


def dequantized(name, weight):
    if name in ("f8_e4m3", "q4_zp"):
        return values_of_folders(name, weight)
    return gguf.quants.dequantize(weight, gguf.GGMLQuantizationType[name.upper()])


def minimums(name, weight):
    """Magnitude of what a block adds to all of its weights: the weights whose integer is 0."""
    blocks = weight.reshape(len(weight), -1, BLOCKS[name][1]).copy()
    blocks[:, :, INTEGERS[name]] = 0
    return np.abs(dequantized(name, blocks.reshape(weight.shape)))


def error_bound(name, activations, variant, weight, x):
    values = np.abs(dequantized(name, weight).astype(np.float64))
    columns = x.shape[1]
    rounding, error, magnitudes = columns + 2, np.zeros(x.shape), values
    flushed = 0.0
    if activations == "bfloat16":
        error = 2.0**-8 * np.abs(x.astype(np.float64)) + 2.0**-126
        flushed = 2.0**-126 * (1 + np.abs(x.astype(np.float64))).sum(axis=1, keepdims=True)
    elif activations != "float32":
        largest = np.repeat(np.abs(x).reshape(len(x), -1, 32).max(-1), 32, axis=1)
        error = ACTIVATION_ERROR[activations] / 127 * largest.astype(np.float64) + 2.0**-142
        rounding = columns // 16 + 6
        if name in INTEGERS:  # the integers' share and the minimum's are summed apart
            magnitudes = values + 2.0 * minimums(name, weight)
    if name == "bf16" and variant.endswith("+amx"):
        sums = np.abs(x.astype(np.float64)).sum(axis=1, keepdims=True) + values.sum(axis=1)
        flushed = flushed + 2.0**-126 * (12 * columns + 2 * sums)
    rounded = (np.abs(x) + error) @ magnitudes.T
    least = 2.0**-149
    if name == "f8_e4m3":
        least = 2.0**-141 * np.abs(scales_of(weight)).max()
    flushed += columns * least
    return error @ values.T + 1.001 * rounding * ROUNDING * rounded + flushed


def check(name, activations, variant, weight, x, tokens=8):
    y = _native.decode_product(name, activations, variant, weight, x, tokens)
    exact = x.astype(np.float64) @ dequantized(name, weight).astype(np.float64).T
    assert y.dtype == np.float32
    assert y.shape == exact.shape
    assert np.all(np.abs(y - exact) <= error_bound(name, activations, variant, weight, x))
    return y


def test_formats_are_those_tested():
    assert _native.decode_formats() == sorted([*BLOCKS, *NUMBERS])


@pytest.mark.parametrize("name", [*BLOCKS, *NUMBERS])
def test_dequantized_row_is_what_the_format_means(name, rng):
    columns = whole(name, 96)
    weight = random_weight(rng, name, 8, columns)
    for row in weight:
        values = _native.decode_dequantize(name, row, columns)
        assert np.array_equal(values, dequantized(name, row[None])[0])


@every_variant
@pytest.mark.parametrize(("name", "activations"), [p for p in PRODUCTS if p[0] in NUMBERS])
def test_any_number_of_columns_of_numbers_is_within_the_bound(name, activations, variant, rng):
    for columns in range(1, 301):
        weight = random_weight(rng, name, 16, columns)
        x = rng.standard_normal((3, columns)).astype(np.float32)
        check(name, activations, variant, weight, x)


@every_variant
@every_product
def test_blocks_of_columns_are_within_the_bound(name, activations, variant, rng):
    block = whole(name, 32)
    for columns in sorted({-(-k // block) * block for k in (*range(32, 321, 32), 576, 1536, 2048)}):
        weight = random_weight(rng, name, 32, columns)
        x = rng.standard_normal((9, columns)).astype(np.float32)
        x *= np.exp2(rng.integers(-20, 20, (9, 1))).astype(np.float32)
        check(name, activations, variant, weight, x)


@every_variant
@every_product
def test_bits_do_not_depend_on_the_number_of_tokens(name, activations, variant, rng):
    for columns, rows in ((whole(name, 32), 32), (whole(name, 96), 32), (768, 32), (768, 176)):
        weight = random_weight(rng, name, rows, columns)
        x = rng.standard_normal((51, columns)).astype(np.float32)
        alone = _native.decode_product(name, activations, variant, weight, x, 1)
        for tokens in (*range(2, 20), 32, 35, 51):
            y = _native.decode_product(name, activations, variant, weight, x, tokens)
            assert np.array_equal(y, alone)


@pytest.mark.parametrize("name", INTEGER_BLOCKS)
def test_bits_of_hundreds_of_tokens_are_those_of_one(name, rng):
    """More tokens than a kernel takes at a time, and more columns and tiles, or one tile."""
    for columns, rows in ((whole(name, 320), 176), (768, 176), (768, 16)):
        weight = random_weight(rng, name, rows, columns)
        x = rng.standard_normal((400, columns)).astype(np.float32)
        alone = _native.decode_product(name, "int8x2", VARIANTS[-1], weight, x, 1)
        for tokens in (192, 193, 400):
            y = _native.decode_product(name, "int8x2", VARIANTS[-1], weight, x, tokens)
            assert np.array_equal(y, alone)


@every_product
def test_rows_past_the_last_whole_tile_are_those_of_a_whole_one(name, activations, rng):
    columns = whole(name, 64)
    weight = random_weight(rng, name, 48, columns)
    x = rng.standard_normal((7, columns)).astype(np.float32)
    # The first two tiles are multiplied together where both are whole.
    all_rows = _native.decode_product(name, activations, VARIANTS[-1], weight, x, 7)
    for rows in range(1, 48):
        y = _native.decode_product(name, activations, VARIANTS[-1], weight[:rows], x, 7)
        assert np.array_equal(y, all_rows[:, :rows])


@every_variant
@pytest.mark.parametrize("activations", TERMS)
@pytest.mark.parametrize("name", INTEGER_BLOCKS)
def test_largest_integers_do_not_saturate(name, activations, variant):
    # Scale 1, minimum 0, and integers that are all the same.
    columns, block_bytes, _ = BLOCKS[name]
    for byte in (0x00, 0x77, 0x7F, 0x80, 0xFF):
        block = np.full(block_bytes, byte, np.uint8)
        set_to_one(block, name)
        weight = np.tile(block, (48, 2))
        signs = np.where(np.arange(2 * columns) % 3, -1, 1).astype(np.float32)
        x = 127 * np.stack([np.ones_like(signs), -np.ones_like(signs), signs] * 6)
        y = _native.decode_product(name, activations, variant, weight, x, len(x))
        assert np.array_equal(y, x @ dequantized(name, weight).T)


def digest_of_products():
    """Digest of the bits of many tokens' products, with the fastest variant."""
    rng = np.random.default_rng(23)
    digest = hashlib.sha256()
    for name in INTEGER_BLOCKS:
        weight = random_weight(rng, name, 48, 768)
        x = rng.standard_normal((19, 768)).astype(np.float32)
        digest.update(_native.decode_product(name, "int8x2", VARIANTS[-1], weight, x, 19))
    return digest.hexdigest()


@pytest.mark.skipif("x86-64-v4+vnni" not in VARIANTS, reason="no product has an identity here")
@pytest.mark.parametrize("value", ["0", "1"])
def test_bits_do_not_depend_on_the_identity_of_winograd(value):
    code = "import test_decode_products as t; print(t.digest_of_products())"
    environment = {**os.environ, "TENSOR_OPS_CPP_WINOGRAD": value}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [digest_of_products()], done.stderr


@pytest.mark.parametrize("activations", TERMS)
@pytest.mark.parametrize("name", INTEGER_BLOCKS)
@pytest.mark.skipif(len(VARIANTS) < 2, reason="the CPU has one variant of products only")
def test_integers_are_the_same_on_every_variant_with_fma(name, activations, rng):
    weight = random_weight(rng, name, 16, 1024)
    x = rng.standard_normal((51, 1024)).astype(np.float32)
    variants = [v for v in VARIANTS if v != "x86-64-v2"]
    first, *others = (
        _native.decode_product(name, activations, variant, weight, x, 51) for variant in variants
    )
    assert all(np.array_equal(first, y) for y in others)


@every_variant
@every_product
def test_zero_is_zero_and_largest_and_least_numbers_are_within_the_bound(
    name, activations, variant, rng
):
    columns = whole(name, 64)
    weight = random_weight(rng, name, 16, columns)
    zero = np.zeros((2, columns), np.float32)
    assert not np.any(_native.decode_product(name, activations, variant, weight, zero, 2))
    for exponent in (-149, -140, -128, -126, -101, -100, -99, -60, 100, 115):
        x = np.clip(rng.standard_normal((4, columns)), -4, 4)
        x = np.ldexp(x, exponent).astype(np.float32)
        check(name, activations, variant, weight, x)
    # One block near the largest float32, beside weights that keep the sums finite.
    if name in BLOCKS:
        blocks = weight.reshape(16, 2, -1).copy()
        for at, value in zip(BLOCKS[name][2], (2.0**-24, 0), strict=False):
            set_half(blocks, at, value)
        if name == "f8_e4m3":
            set_scale(blocks, name, 2.0**-24)
        if name in EXPONENTS:  # 2^-118 and 2^-10
            blocks[..., EXPONENTS[name][0]] = {"mxfp4": 10, "nvfp4": 1}[name]
        weight = blocks.reshape(16, -1)
        largest = np.finfo(np.float32).max
        x = np.full((1, columns), largest / 1024 if name == "f8_e4m3" else largest)
        check(name, activations, variant, weight, x)


@every_variant
@every_product
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_activation_that_is_not_finite_gives_no_number(name, activations, variant, value, rng):
    columns = whole(name, 96)
    weight = random_weight(rng, name, 16, columns)
    x = rng.standard_normal((8, columns)).astype(np.float32)
    for token, column in enumerate((0, 31, 32, 50, 63, 64, 95)):
        x[token, column] = value
    y = _native.decode_product(name, activations, variant, weight, x, 8)
    assert not np.any(np.isfinite(y[:7]))
    assert np.all(np.isfinite(y[7]))


@every_variant
@pytest.mark.parametrize(("name", "activations"), [p for p in PRODUCTS if p[0] not in EXPONENTS])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weight_that_is_not_finite_gives_no_number_in_its_row(
    name, activations, variant, value, rng
):
    columns = whole(name, 96)
    weight = random_weight(rng, name, 16, columns)
    if name in BLOCKS:
        blocks = weight.reshape(16, 3, -1)
        for row, block in ((1, 0), (7, 1), (15, 2)):
            set_scale(blocks[row, block], name, value)
    else:
        scale = np.array([value], np.float16).view(np.uint8)
        bits = np.array([value], np.float32).view(np.uint8)
        number = {"f32": bits, "bf16": bits[2:], "f16": scale}[name]
        for row, column in ((1, 0), (7, 50), (15, 95)):
            at = column * NUMBERS[name]
            weight[row, at : at + NUMBERS[name]] = number
    x = rng.standard_normal((3, columns)).astype(np.float32)
    y = _native.decode_product(name, activations, variant, weight, x, 3)
    broken = np.isin(np.arange(16), (1, 7, 15))
    assert not np.any(np.isfinite(y[:, broken]))
    assert np.all(np.isfinite(y[:, ~broken]))


@pytest.mark.parametrize("name", [*NUMBERS, "f8_e4m3"])
def test_weights_in_floating_point_take_no_integers(name):
    weight = random_weight(np.random.default_rng(), name, 16, 64)
    x = np.zeros((1, 64), np.float32)
    for variant in VARIANTS:
        with pytest.raises(ValueError, match=f"{name} has no product with int8"):
            _native.decode_product(name, "int8", variant, weight, x, 1)


@pytest.mark.parametrize("activations", ["float32", "bfloat16"])
def test_bits_of_hundreds_of_tokens_of_numbers_are_those_of_one(activations, rng):
    """More tokens than a kernel takes at a time, more columns, and odd numbers of either."""
    for columns, rows in ((2100, 48), (4160, 16), (75, 176)):
        weight = random_weight(rng, "bf16", rows, columns)
        x = rng.standard_normal((200, columns)).astype(np.float32)
        alone = _native.decode_product("bf16", activations, VARIANTS[-1], weight, x, 1)
        for tokens in (63, 64, 65, 129, 200):
            y = _native.decode_product("bf16", activations, VARIANTS[-1], weight, x, tokens)
            assert np.array_equal(y, alone)


@pytest.mark.skipif("amx" not in VARIANTS[-1], reason="there are no tiles here")
@pytest.mark.parametrize("exponent", [-150, -140, -127, -60, 0, 60])
def test_three_terms_of_an_activation_are_all_of_it(exponent, rng):
    """Sums of one column are the products, rounded once, where nothing is subnormal."""
    weight = np.zeros((16, 2), np.uint8)
    weight[:, 1] = 0x3F + np.arange(16) % 2  # 0.5 or 2
    x = np.ldexp(rng.uniform(1, 2, (300, 1)), exponent).astype(np.float32)
    y = _native.decode_product("bf16", "float32", VARIANTS[-1], weight, x, 300)
    exact = x * np.where(np.arange(16) % 2, 2.0, 0.5).astype(np.float32)
    least = 0 if exponent > -100 else 2.0**-126 * 16
    assert np.all(np.abs(y - exact) <= least)


@every_variant
def test_bfloat16_rounds_to_nearest_even(variant):
    weight = np.zeros((16, 4), np.uint8)
    weight[:, [1, 3]] = 0x3F, 0x41  # 0.5 and 8
    halves = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1 + 2.0**-8 + 2.0**-20])
    x = np.stack([halves, np.zeros(4)], axis=1).astype(np.float32)
    rounded = np.array([1, 1 + 2.0**-6, -1, 1 + 2.0**-7])
    y = _native.decode_product("bf16", "bfloat16", variant, weight, x, 4)
    assert np.array_equal(y, np.repeat(rounded[:, None], 16, axis=1) / 2)
