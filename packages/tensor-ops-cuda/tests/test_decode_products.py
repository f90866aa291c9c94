"""Products: sums of integers are those of the other executors, those of bfloat16 keep a bound."""

import numpy as np
import pytest
from emulated_kernels import AMPERE, HOPPER
from random_llama import fill, stored
from small_programs import Assembly, outputs

import tensor_ops_cuda
from tensor_ops_decode import Builder, Limits, Tensor
from tensor_ops_decode.weights.formats import FORMATS

pytestmark = pytest.mark.usefixtures("device")

TOKENS, ROWS, BLOCK = 5, 24, 32


def products(kind, table, weight):
    """Return what a matrix makes of the rows of a table, and the matrix as it is stored."""
    builder = Builder(Limits(TOKENS, TOKENS, TOKENS, 8, 8, TOKENS))
    tensors = {"table": stored(table, "bf16"), "weight": stored(weight, kind)}
    for name, (type_, shape) in {
        "table": ("bf16", table.shape),
        "weight": (kind, weight.shape),
    }.items():
        builder.tensor(name, Tensor(type_, shape, {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    y = builder.add("linear", {"x": x}, {"weight": "weight"}, output="y")
    program = builder.program([y])
    executable = tensor_ops_cuda.compile_program(program.to_json(), tensors)
    fill(executable, range(TOKENS), [0] * TOKENS, range(TOKENS), [])
    executable.run(TOKENS, 0)
    return executable.arrays["y"][:TOKENS].copy(), tensors["weight"]


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_the_sum_of_a_block_is_that_of_its_integers(kind):
    """Scales are powers of two here, so that nothing else is rounded but the sum and 1 / 254."""
    draw = np.random.default_rng(1)
    # As bfloat16 holds them. The largest of a row is 127, and its scale 1.
    table = (draw.integers(-126, 127, (TOKENS, BLOCK)) / 2.0 ** draw.integers(0, 6)).astype(
        np.float32
    )
    table[:, 5] = 127
    integers = draw.integers(-7, 8, (ROWS, BLOCK)).astype(np.float32)
    # The number from which a scale is made.
    integers[:, 3] = -8 if kind == "q4_0" else 127
    found, weight = products(kind, table, integers / 4)
    assert (FORMATS[kind].dequantize(weight.reshape(ROWS, -1), BLOCK) == integers / 4).all()
    first = np.rint(table)
    second = np.rint((table - first) * np.float32(254))
    sums = (254 * first + second).astype(np.int64) @ integers.T.astype(np.int64)
    right = sums.astype(np.float32) * np.float32(0.25) * (np.float32(1) / np.float32(254))
    assert found.tobytes() == right.tobytes()


RULES = {"Hopper": HOPPER, "Ampere": AMPERE}
# A warp adds the products of all 512 columns where a matrix has as many rows.
SHAPES = {"several panels": (96, 2048), "the longest sums of a warp": (16896, 512)}
SLOW = pytest.mark.unsanitized(reason="takes a minute there")
USUAL = 1 / 50  # of the bound, that random numbers keep to


@pytest.fixture(params=RULES)
def sum_rule(request, device, is_emulated):
    """How the tensor cores add: of each generation where they are emulated."""
    rule = RULES[request.param]
    if not is_emulated:
        if rule != (AMPERE if device.compute_capability < 90 else HOPPER):
            pytest.skip("tensor cores of another generation")
        yield rule
        return
    runtime = request.getfixturevalue("runtime")
    runtime.emulatedSetSumRule(*rule)
    yield rule
    runtime.emulatedSetSumRule(*HOPPER)


def error_bound(columns, rule):
    """Return what a sum may err by, of its magnitudes: decode/kernels/product.cuh derives it."""
    products, extra_bits = rule
    instruction = 16 / products * ((products + 1) * 2.0**-extra_bits + 1) * 2.0**-23
    return 32 * (1 + 2.0**-6) * instruction + (7 + -(-columns // 512)) * 2.0**-24


def without_last_term(x):
    """Return float32 numbers without the last of the three terms of bfloat16 that they are."""
    rest = x
    for _ in range(2):
        rest = rest - (rest.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return x - rest


@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=[SLOW] if "longest" in name else []) for name in SHAPES]
)
def test_sums_of_bfloat16_keep_to_their_bound(shape, sum_rule):
    rows, columns = SHAPES[shape]
    made = Assembly()
    made.linear("x1", "x", made.matrix("first", columns))
    made.linear("y", "x1", made.matrix("second", rows, columns))
    step = ([0] * 3 + [1] * 3 + [2] * 2, [*range(3), *range(3), *range(2)], [])
    x, y = outputs(tensor_ops_cuda, made.builder.program(["x1", "y"]), made.tensors, [step])
    weight = (made.tensors["second"].astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    exact, magnitudes = (f(x).astype(np.float64) @ f(weight).T for f in (np.positive, np.abs))
    error = (np.abs(y - exact) / magnitudes).max()
    without = (np.abs(without_last_term(x) @ weight.T - exact) / magnitudes).max()
    bound = error_bound(columns, sum_rule)
    print(f"largest error {error:.2g} of the magnitudes, bound {bound:.2g}; "
          f"without third terms it would be {without:.2g}")  # fmt: skip
    assert error < USUAL * bound
    assert error < without / 8
