"""The kernels' constants are the same in all three languages and as accurate as stated."""

import struct
import tomllib
from functools import reduce
from pathlib import Path

import mpmath as mp
import pytest

import kernel_constants

TABLE = tomllib.loads(
    Path(kernel_constants.__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
HALF = mp.log(2) / 2


@pytest.mark.parametrize("path", kernel_constants.headers(), ids=lambda path: path.name)
def test_headers_are_those_of_the_table(path):
    expected = kernel_constants.headers()[path]
    assert path.read_text(encoding="utf-8") == expected, "run python tools/kernel_constants.py"


def exp_quotient(r):
    return (mp.expm1(r) - r) / r**2


def exp2_quotient(r):
    return mp.expm1(r * mp.log(2)) / r


def mills(shift):
    """Return the tail times ``a + shift``, by ``2 a / (a + shift) - 1``."""

    def scaled(u):
        a = 2 * shift / (1 - u) - shift
        return (a + shift) * scaled_tail(a)

    return scaled


def scaled_tail(a):
    return mp.ncdf(-a) * mp.exp(a * a / 2)


def end_of(shift, largest):
    return 1 - 2 * shift / (largest + shift)


# The name of a series; its function and interval; how large an error of it is relative to the
# result; and the largest error that is allowed of the result.
SERIES = [
    ("exp.float32.series", exp_quotient, -HALF, HALF, HALF**2, 1.1e-8),
    ("exp.float64.series", exp_quotient, -HALF, HALF, HALF**2, 2e-17),
    ("exp2.float32.series", exp2_quotient, -0.5, 0.5, 0.5, 7.6e-9),
    ("exp2.float32.half_series", exp2_quotient, -0.5, 0.5, 0.5, 6.8e-6),
    ("exp2.float64.series", exp2_quotient, -0.5, 0.5, 0.5, 2.1e-17),
    ("exp2_of_8.float32.series", exp2_quotient, -1 / 16, 1 / 16, 1 / 16, 4.41e-10),
    ("exp2_of_8.float32.half_series", exp2_quotient, -1 / 16, 1 / 16, 1 / 16, 6.8e-6),
    ("exp2_of_8.float64.series", exp2_quotient, -1 / 16, 1 / 16, 1 / 16, 2.1e-17),
    ("exp2_of_16.float32.series", exp2_quotient, -1 / 32, 1 / 32, 1 / 32, 2.4e-9),
    ("exp2_of_16.float32.half_series", exp2_quotient, -1 / 32, 1 / 32, 1 / 32, 6.8e-6),
    ("mills.float32.series", mills(1.5), -1, end_of(1.5, 20.5), None, 3.8e-8),
    ("mills.float32.half_series", mills(1.5), -1, end_of(1.5, 12.5), None, 2.11e-5),
    ("mills.float64.series", mills(4.5), -1, end_of(4.5, 54), None, 4.1e-17),
]


@pytest.mark.parametrize(
    ("name", "function", "low", "high", "share", "bound"), SERIES, ids=[row[0] for row in SERIES]
)
def test_series_are_as_accurate_as_stated(name, function, low, high, share, bound):
    group, dtype, key = name.split(".")
    series = [as_type(dtype, value) for value in TABLE[group][dtype][key]]
    with mp.workdps(40):
        for i in range(200):
            x = low + (high - low) * (mp.mpf(i) + mp.mpf(1) / 3) / 200
            wanted = function(x)
            error = abs(horner(series, x) - wanted)
            assert (error / wanted if share is None else error * share) <= bound


@pytest.mark.parametrize(("key", "bound"), [("pieces", 4.8e-8), ("half_pieces", 2.6e-5)])
def test_pieces_of_the_tail_are_as_accurate_as_stated(key, bound):
    for piece in range(16):
        octave, quarter = divmod(piece, 4)
        start, width = 2**octave * (1 + quarter / 4), 2**octave / 4
        column = ((127 + octave) * 4 + quarter) % 16
        series = [as_type("float32", row[column]) for row in TABLE["tail"]["float32"][key]]
        for i in range(20):
            r = width * mp.mpf(i) / 20
            assert abs(horner(series, r) / scaled_tail(start - 1 + r) - 1) <= bound


def horner(series, x):
    return reduce(lambda value, coefficient: value * x + coefficient, series)


def as_type(dtype, value):
    return mp.mpf(struct.unpack("f", struct.pack("f", value))[0] if dtype == "float32" else value)


@pytest.mark.parametrize("group", ["exp2_of_8", "exp2_of_16"])
def test_powers_are_rounded_powers_of_two(group):
    for dtype in TABLE[group].keys() & {"float32", "float64"}:
        powers = TABLE[group][dtype]["powers"]
        exact = [mp.mpf(2) ** (mp.mpf(j) / len(powers)) for j in range(len(powers))]
        assert [as_type(dtype, v) for v in powers] == [as_type(dtype, float(v)) for v in exact]
