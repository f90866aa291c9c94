"""Stored types: their sizes, and their values bit for bit as ggml's Python package has them."""

import numpy as np
import pytest

from tensor_ops_decode.weights.formats import FORMATS, GGML_TYPES
from tensor_ops_decode.weights.transforms import QUANTIZED_TYPES

gguf = pytest.importorskip("gguf")


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype == np.float32 and a.tobytes() == b.tobytes()


def ggml_values(data, form):
    kind = gguf.GGMLQuantizationType(form.ggml_type)
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(data, kind)


def test_sizes_of_every_type_are_ggmls():
    sizes = {number: (form.block_size, form.block_bytes) for number, form in GGML_TYPES.items()}
    assert sizes == {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    names = {form.name.lower() for form in GGML_TYPES.values()}
    assert names == {kind.name.lower() for kind in gguf.GGML_QUANT_SIZES}


@pytest.mark.parametrize("name", [form.name for form in GGML_TYPES.values() if form.is_supported])
def test_any_bytes_dequantize_as_in_ggml(name):
    # Random bytes have NaN, infinities and subnormal numbers as scales too.
    form = FORMATS[name]
    columns = 3 * max(form.block_size, 32)
    rows = np.random.default_rng(0).integers(0, 256, (3000, form.row_bytes(columns)), np.uint8)
    assert same_bits(form.dequantize(rows, columns), ggml_values(rows, form))


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16"])
def test_quantized_values_dequantize_as_in_ggml(name):
    form = FORMATS[name]
    x = np.random.default_rng(1).standard_normal((7, 64), np.float32)
    rows = gguf.quants.quantize(x, gguf.GGMLQuantizationType(form.ggml_type))
    values = form.dequantize(rows, 64)
    assert same_bits(values, ggml_values(rows, form))
    assert np.abs(values - x).max() < 0.3


@pytest.mark.parametrize("given", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", QUANTIZED_TYPES)
def test_values_are_quantized_as_in_ggml(name, given):
    draw = np.random.default_rng(4)
    x = draw.standard_normal((700, 96), np.float32) * np.exp2(draw.integers(-30, 15, (700, 1)))
    x[0], x[1, :40], x[2, 5], x[3] = 0, -1, 7, np.round(x[3] * 4) / 8  # ties
    rows = gguf.quants.quantize(x.astype(np.float32), gguf.GGMLQuantizationType[given.upper()])
    rows = rows.view(np.uint8).reshape(700, -1)
    values = FORMATS[given].dequantize(rows, 96)
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType[name.upper()])
    assert np.array_equal(FORMATS[name].quantize(rows, FORMATS[given], 96), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", QUANTIZED_TYPES)
def test_a_block_with_a_value_that_is_not_finite_has_none_that_is(name, value):
    x = np.ones((1, 64), np.float32)
    x[0, 40] = value
    rows = FORMATS[name].quantize(x.view(np.uint8), FORMATS["f32"], 64)
    finite = np.isfinite(FORMATS[name].dequantize(rows, 64))
    assert finite[0, :32].all()
    assert not finite[0, 32:].any()


def test_quantizing_to_a_type_that_is_only_read_is_an_error():
    with pytest.raises(ValueError, match=r"quantized to q6_K; expected one of q4_0, .*, q8_0"):
        FORMATS["q6_K"].quantize(np.zeros((1, 1024), np.uint8), FORMATS["f32"], 256)


def test_pieces_of_a_large_tensor_are_the_whole():
    form = FORMATS["q8_0"]
    rows = np.random.default_rng(2).integers(0, 60, (3, 4096 * 34), np.uint8)
    whole = form.dequantize(rows, 4096 * 32)
    parts = [form.dequantize(row, 4096 * 32) for row in rows]
    assert whole.tobytes() == np.stack(parts).tobytes()


def test_float64_values_are_those_of_float32():
    rows = np.random.default_rng(3).integers(0, 60, (4, 40), np.uint8)
    form = FORMATS["q4_1"]
    exact = form.dequantize(rows, 64, np.float64)
    assert exact.dtype == np.float64
    assert np.array_equal(exact, form.dequantize(rows, 64).astype(np.float64))


def test_read_only_and_strided_rows_are_taken():
    rows = np.arange(4 * 68, dtype=np.uint8).reshape(4, 68)
    rows.flags.writeable = False
    form = FORMATS["q8_0"]
    assert same_bits(form.dequantize(rows[::2], 64), form.dequantize(rows[::2].copy(), 64))


def test_a_row_of_no_whole_blocks_is_an_error():
    with pytest.raises(ValueError, match=r"row of 33 values cannot be stored as q4_0.* of 32"):
        FORMATS["q4_0"].row_bytes(33)


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 33), np.uint8), np.zeros((2, 34), np.int8), np.zeros((), np.uint8)]
)
def test_rows_of_another_shape_or_dtype_are_an_error(rows):
    with pytest.raises(ValueError, match=r"32 values of q8_0 are uint8 of shape \(..., 34\)"):
        FORMATS["q8_0"].dequantize(rows, 32)


def test_a_type_that_is_not_supported_is_named():
    with pytest.raises(ValueError, match="q1_0 are not supported; supported are f32, f16"):
        GGML_TYPES[41].dequantize(np.zeros((1, 18), np.uint8), 128)
