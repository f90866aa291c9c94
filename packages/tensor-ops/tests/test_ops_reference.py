"""The meaning of every op: its NumPy body in float64 against its formula in 50 digits.

All other tests take the float64 bodies as their reference. These hold the bodies themselves to the
formulas that the docstrings print.
"""

import doctest
import inspect

import mpmath as mp
import numpy as np
import pytest

import tensor_ops
from tensor_ops.ops import OPS

mp.mp.dps = 50

SMALLEST_NORMAL = float(np.finfo(np.float64).smallest_normal)
SECTIONS = ["Parameters", "Returns", "Raises", "Notes", "Examples"]

# Largest errors, in ULP for the elementwise ops, else relative. Half an ULP is the last rounding;
# the others are exp's (up to one), and one each for a few operations.
ULPS = 4.0
# The distribution function has a quotient and a polynomial besides.
ERF_ULPS = 7.0
# The tail of silu_mul is a product of two exponentials.
DEEP_ULPS = 5.0
RELATIVE = 1e-15
GELU_ULPS = {"tanh": ULPS, "none": ERF_ULPS}

random = np.random.default_rng(0)
signs = random.choice([-1.0, 1.0], 100)
spread = np.exp2(random.uniform(-60, 60, 100)) * signs
large = np.exp2(random.uniform(300, 1000, 20)) * signs[:20]
elements = np.concatenate([np.linspace(-40, 40, 301), spread, large, [0.0]])
tails = np.concatenate([np.linspace(-760, -690, 141), np.linspace(-690, -30, 100)])


def ulps(result, exact):
    """Return the largest error in ULP; results below the smallest normal number are as small."""
    worst = 0.0
    for got, want in zip(np.ravel(result).tolist(), exact, strict=True):
        if abs(want) >= SMALLEST_NORMAL:
            ulp = mp.ldexp(1, int(mp.floor(mp.log(abs(want), 2))) - 52)
            worst = max(worst, float(abs(mp.mpf(got) - want) / ulp))
        else:
            assert abs(mp.mpf(got) - want) <= SMALLEST_NORMAL
    return worst


def relative(result, exact, scale=None):
    """Return the largest error relative to the element, or to `scale`."""
    pairs = zip(np.ravel(result).tolist(), exact, strict=True)
    return max(float(abs(mp.mpf(got) - want) / (scale or abs(want))) for got, want in pairs)


def numbers(array):
    return [mp.mpf(value) for value in np.ravel(array).tolist()]


def exact_silu(x):
    return x / (1 + mp.exp(-x))


def exact_gelu(x, approximate):
    if abs(x) > 70:
        return max(x, mp.mpf(0))
    if approximate == "none":
        return x * mp.erfc(-x / mp.sqrt(2)) / 2
    inner = mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)
    # 1 + tanh(y) in a form that keeps the digits of the tail.
    return x / (1 + mp.exp(-2 * inner))


@pytest.mark.parametrize("x", [elements, tails], ids=["elements", "tails"])
def test_silu(x):
    assert ulps(OPS["silu"].numpy(x), map(exact_silu, numbers(x))) <= ULPS


@pytest.mark.parametrize("approximate", ["tanh", "none"])
@pytest.mark.parametrize("x", [elements, np.linspace(-22, -1, 400)], ids=["elements", "tails"])
def test_gelu(x, approximate):
    exact = [exact_gelu(value, approximate) for value in numbers(x)]
    assert ulps(OPS["gelu"].numpy(x, approximate), exact) <= GELU_ULPS[approximate]


@pytest.mark.parametrize(
    "call",
    [OPS["silu"].numpy, OPS["gelu"].numpy, lambda x: OPS["gelu"].numpy(x, "none")],
    ids=["silu", "gelu", "gelu by erf"],
)
def test_limits(call):
    x = np.array([-np.inf, np.inf, np.nan, -1e300, 1e300, -0.0, 0.0])
    result = call(x)
    np.testing.assert_array_equal(result, [0, np.inf, np.nan, 0, 1e300, 0, 0])
    np.testing.assert_array_equal(np.signbit(result[[0, 3, 5, 6]]), [True, True, True, False])


def test_silu_mul():
    up = random.standard_normal(elements.size)
    pairs = zip(numbers(elements), numbers(up), strict=True)
    exact = [exact_silu(gate) * factor for gate, factor in pairs]
    assert ulps(OPS["silu_mul"].numpy(elements, up), exact) <= ULPS


def test_silu_mul_of_a_tail_and_a_large_factor():
    up = np.exp2(random.uniform(900, 1000, tails.size))
    pairs = zip(numbers(tails), numbers(up), strict=True)
    exact = [exact_silu(gate) * factor for gate, factor in pairs]
    assert ulps(OPS["silu_mul"].numpy(tails, up), exact) <= DEEP_ULPS


@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_gelu_mul(approximate):
    up = random.standard_normal(elements.size)
    pairs = zip(numbers(elements), numbers(up), strict=True)
    exact = [exact_gelu(gate, approximate) * factor for gate, factor in pairs]
    result = OPS["gelu_mul"].numpy(elements, up, approximate)
    assert ulps(result, exact) <= GELU_ULPS[approximate] + 1


# Down to the smallest gates whose gelu is not zero, times the largest number.
DEEP = {"tanh": np.linspace(-26, -15, 200), "none": np.linspace(-53, -30, 200)}


@pytest.mark.parametrize("approximate", DEEP)
def test_gelu_mul_of_a_tail_and_a_large_factor(approximate):
    gate = DEEP[approximate]
    up = np.exp2(random.uniform(30, 1000, gate.size))
    up[::7] = np.finfo(np.float64).max
    pairs = zip(numbers(gate), numbers(up), strict=True)
    exact = [exact_gelu(value, approximate) * factor for value, factor in pairs]
    result = OPS["gelu_mul"].numpy(gate, up, approximate)
    assert ulps(result, exact) <= GELU_ULPS[approximate] + 1
    ones = np.ones_like(up)
    _, of_up = OPS["gelu_mul_backward"].numpy(up, gate, ones, approximate)
    np.testing.assert_array_equal(of_up, result)


@pytest.mark.parametrize("form", ["silu", *DEEP])
def test_factors_of_a_derivative_whose_product_overflows(form):
    gate = np.linspace(-1500, -300, 100) if form == "silu" else DEEP[form][:100]
    grad, up = np.exp2(random.uniform(600, 1000, (2, gate.size)))
    grad[::7] = np.finfo(np.float64).max
    triples = zip(numbers(gate), numbers(grad), numbers(up), strict=True)
    exact = [exact_slope(value, form) * a * b for value, a, b in triples]
    if form == "silu":
        of_gate, _ = OPS["silu_mul_backward"].numpy(grad, gate, up)
    else:
        of_gate, _ = OPS["gelu_mul_backward"].numpy(grad, gate, up, form)
    is_finite = np.array([abs(value) < np.finfo(np.float64).max for value in exact])
    assert is_finite.sum() > 20
    assert relative(of_gate[is_finite], np.array(exact)[is_finite]) <= 2e-15
    assert np.isneginf(of_gate[~is_finite]).all()


def exact_slope(x, form):
    function = exact_silu if form == "silu" else lambda value: exact_gelu(value, form)
    with mp.workdps(80):
        return mp.diff(function, x)


@pytest.mark.parametrize("op", ["silu_mul", "gelu_mul"])
def test_zero_times_infinity_is_nan(op):
    gate = np.array([-np.inf, 0.0, np.inf, np.inf, 1.0])
    up = np.array([np.inf, np.inf, 0.0, -1.0, -np.inf])
    result = OPS[op].numpy(gate, up)
    np.testing.assert_array_equal(result, [np.nan, np.nan, np.nan, -np.inf, -np.inf])


ROWS = {
    "normal": random.standard_normal(200),
    "far from zero": 1e8 + random.standard_normal(200),
    "large": random.standard_normal(200) * 1e100,
    "small": random.standard_normal(200) * 1e-100,
    "squares that overflow": random.standard_normal(200) * 1e200,
    "sums that overflow": random.uniform(-1, 1, 200) * 1.7e308,
    "squares that underflow": random.standard_normal(200) * 1e-200,
    "tiny": random.standard_normal(200) * 1e-300,
    "one": np.array([0.3]),
    "two": np.array([0.3, -2.0]),
}


@pytest.mark.parametrize("eps", [1e-6, 1e-300, 0.0])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_rms_norm(row, eps):
    weight = random.standard_normal(row.size)
    exact = exact_rms_norm(numbers(row), numbers(weight), eps)
    assert relative(OPS["rms_norm"].numpy(row, weight, eps), exact) <= RELATIVE


@pytest.mark.parametrize("eps", [1e-6, 1e-300, 0.0])
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_add_rms_norm(row, eps):
    residual, weight = random.standard_normal((2, row.size))
    y, h = OPS["add_rms_norm"].numpy(row, residual, weight, eps)
    np.testing.assert_array_equal(h, row + residual)
    exact = exact_rms_norm(numbers(h), numbers(weight), eps)
    assert relative(y, exact) <= RELATIVE


def test_float64_rows_whose_terms_cancel():
    x, residual = np.array([[1e300, 1e-300], [1.7e308, 1e308]]), np.array([[-1e300, 1e-300]] * 2)
    residual[1] = [1e308, -1e308]
    y, _ = OPS["add_rms_norm"].numpy(x, residual, np.ones(2), 0.0)
    np.testing.assert_allclose(y, [[0, 2**0.5], [2**0.5, 0]], rtol=RELATIVE)
    constant = np.array([[1.7e308, 1.7e308], [1e-310, 1e-310]])
    np.testing.assert_array_equal(OPS["layer_norm"].numpy(constant, np.ones(2)), np.zeros((2, 2)))


def exact_rms_norm(x, weight, eps):
    rms = mp.sqrt(mp.fsum(value**2 for value in x) / len(x) + mp.mpf(eps))
    return [value * factor / rms for value, factor in zip(x, weight, strict=True)]


@pytest.mark.parametrize(
    ("name", "eps"),
    # One element and no eps is zero divided by zero.
    [(name, eps) for name in ROWS for eps in (1e-5, 0.0) if (name, eps) != ("one", 0.0)],
)
def test_layer_norm(name, eps):
    row = ROWS[name]
    weight, bias = random.standard_normal((2, row.size))
    exact = exact_layer_norm(numbers(row), numbers(weight), numbers(bias), eps)
    result = OPS["layer_norm"].numpy(row, weight, bias, eps)
    assert relative(result, exact, max(map(abs, exact))) <= RELATIVE


def exact_layer_norm(x, weight, bias, eps):
    mean = mp.fsum(x) / len(x)
    deviation = mp.sqrt(mp.fsum((value - mean) ** 2 for value in x) / len(x) + mp.mpf(eps))
    return [
        (value - mean) / deviation * factor + shift
        for value, factor, shift in zip(x, weight, bias, strict=True)
    ]


@pytest.mark.parametrize("eps", [1e-5, 1e-300])
@pytest.mark.parametrize("value", [0.0, 1e-310, 0.3, -1e153, 1e200, np.finfo(np.float64).max])
def test_gradients_of_layer_norm_at_constant_rows(value, eps):
    grad, weight = np.array([[1.0, 2.0, 6.0]]), np.array([1.0, 2.0, 3.0])
    x = np.full((1, 3), value)
    of_x, of_weight, _ = OPS["layer_norm_backward"].numpy(grad, x, weight, eps)
    # There the norm is linear in the deviations from the mean, which are zero.
    along = grad * weight
    exact = numbers((along - along.mean()) / np.sqrt(eps))
    assert relative(of_x, exact, max(map(abs, exact))) <= RELATIVE
    np.testing.assert_array_equal(of_weight, np.zeros(3))


@pytest.mark.parametrize("eps", [1e-36, 1e-200, 1e-300, 0.0])
@pytest.mark.parametrize("units", [0, 10**15])
def test_norms_of_subnormal_rows(units, eps):
    x, residual = (units + random.permutation(np.arange(1, 101))) * 5e-324, np.arange(100) * 5e-324
    weight = random.standard_normal(100)
    exact = exact_rms_norm(numbers(x), numbers(weight), eps)
    assert relative(OPS["rms_norm"].numpy(x, weight, eps), exact) <= RELATIVE
    y, h = OPS["add_rms_norm"].numpy(x, residual, weight, eps)
    exact = exact_rms_norm(numbers(h), numbers(weight), eps)
    assert relative(y, exact) <= RELATIVE
    exact = exact_layer_norm(numbers(x), numbers(weight), [0] * 100, eps)
    result = OPS["layer_norm"].numpy(x, weight, None, eps)
    assert relative(result, exact, max(map(abs, exact))) <= RELATIVE


@pytest.mark.parametrize("scale", [1.0, 0.1, -0.7, 3.0, 0.0])
@pytest.mark.parametrize("spread", [1.0, 60.0, 200.0])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_softmax(scale, spread, shift):
    check_softmax(shift + random.standard_normal(200) * spread, scale)


@pytest.mark.parametrize("scale", [2e-308, -1e-307, 1e-306, 0.0, 5e-324])
def test_softmax_of_differences_that_overflow(scale):
    check_softmax(1.7e308 * np.array([1, -1, 0.5, -0.9, 0, 1e-3]), scale)


def check_softmax(row, scale):
    products = [value * mp.mpf(scale) for value in numbers(row)]
    powers = [mp.exp(value - max(products)) for value in products]
    total = mp.fsum(powers)
    normal = np.array([power / total > SMALLEST_NORMAL for power in powers])
    result = OPS["softmax"].numpy(row, scale)
    exact = [power / total for power, keep in zip(powers, normal, strict=True) if keep]
    assert relative(result[normal], exact) <= RELATIVE
    assert (result[~normal] <= SMALLEST_NORMAL).all()


@pytest.mark.parametrize(
    ("row", "scale", "expected"),
    [
        ([0, -np.inf, 0], 1, [0.5, 0, 0.5]),
        ([-np.inf, -np.inf], 1, [np.nan, np.nan]),
        ([0, np.inf], 1, [np.nan, np.nan]),
        ([0, np.inf], -1, [1, 0]),
        ([5, -3, 1, 0], 0, [0.25] * 4),
        ([5, -np.inf], 0, [np.nan, np.nan]),
        ([1e308, -1e308], 1e10, [1, 0]),
        ([6e4, 6e4, 1], 1e305, [0.5, 0.5, 0]),
        ([6e4, 1, -6e4], -1e305, [0, 0, 1]),
        ([0, np.nan], 1, [np.nan, np.nan]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_softmax_at_its_edges(row, scale, expected, dtype):
    with np.errstate(over="ignore"):
        x = np.clip(row, -np.inf, np.inf).astype(dtype)
    if dtype == np.float32:
        # The row of large numbers in float32: the products alone overflow.
        x = np.where(np.isinf(x) & np.isfinite(row), np.sign(x) * np.float32(3e38), x)
    np.testing.assert_array_equal(OPS["softmax"].numpy(x, scale), np.array(expected, dtype))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("cancelling", [False, True])
def test_rope(interleaved, cancelling):
    a, b = random.standard_normal((2, 200))
    angle = np.arctan2(a, b) if cancelling else random.uniform(0, 6, 200)
    cos, sin = np.cos(angle), np.sin(angle)
    x = np.stack([a, b], axis=-1).ravel() if interleaved else np.concatenate([a, b])
    y = OPS["rope"].numpy(x, cos, sin, interleaved=interleaved)
    y_a, y_b = (y[0::2], y[1::2]) if interleaved else np.split(y, 2)
    quadruples = list(zip(*map(numbers, (a, b, cos, sin)), strict=True))
    assert ulps(y_a, [a * c - b * s for a, b, c, s in quadruples]) <= ULPS
    assert ulps(y_b, [b * c + a * s for a, b, c, s in quadruples]) <= ULPS


@pytest.mark.parametrize("name", OPS)
def test_examples_print_what_they_say(name):
    with tensor_ops.use_backend("python"):
        tests = doctest.DocTestFinder().find(OPS[name].body, name, globs={})
        results = [doctest.DocTestRunner().run(test) for test in tests]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0


@pytest.mark.parametrize("name", OPS)
def test_docstrings_have_every_section(name):
    op = OPS[name]
    text = inspect.cleandoc(op.public.__doc__ or "")
    lines = text.splitlines()
    assert lines[0].endswith(".")
    assert ".. math::" in text
    places = [lines.index(section) for section in SECTIONS]
    assert places == sorted(places)
    for place, section in zip(places, SECTIONS, strict=True):
        assert lines[place + 1] == "-" * len(section)
    assert "Source: " in text
    described = "\n".join(lines[places[0] : places[1]])
    for argument in op.signature.parameters:
        assert any(line.split(" : ")[0].find(argument) >= 0 for line in described.splitlines())
    for error in ("TypeError", "ValueError", "BackendError"):
        assert error in lines
