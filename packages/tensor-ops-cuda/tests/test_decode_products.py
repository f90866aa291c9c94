"""Products of integers: the sum of a block is that of the other executors, bit for bit."""

import numpy as np
import pytest
from random_llama import fill, stored

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
