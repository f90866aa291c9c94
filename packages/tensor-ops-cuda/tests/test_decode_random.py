"""Random small programs have the results of the reference, or are refused."""

import random

import pytest
from largest_errors import check_errors
from small_programs import COLUMNS, Assembly, outputs

import tensor_ops_cuda
from tensor_ops_decode import reference

pytestmark = pytest.mark.usefixtures("device")

# The most that rounding to two terms, and keys and values to float16, change in values of about 1.
BOUND = 1e-3


class RandomProgram:
    """Adds nodes to a program.

    `values` have the rows of all tokens. `selected` have those of selected ones; of them `chosen`
    are what nodes of the kind select write, which others multiply or add.
    """

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.made = Assembly(seed, page=self.draw.choice([1, 3, 4, 7, 16]))
        self.values, self.selected, self.chosen, self.count = ["x"], [], [], 0
        self.norm = self.made.tensor("norm", 1 + 0.1 * self.made.draw.standard_normal(COLUMNS))

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def matrix(self, rows, columns=COLUMNS):
        kinds = ["bf16", "q8_0", "q4_0"] if columns % 32 == 0 else ["bf16"]
        return self.made.matrix(f"{self.name()}.weight", rows, columns, self.draw.choice(kinds))

    def product(self, x, weight):
        if self.draw.random() < 0.5:
            return self.made.linear(self.name(), x, weight)
        return self.made.normed(self.name(), x, self.norm, weight)

    def residual(self, values):
        return self.draw.choice([*values, None]) if values else None

    def add_attention(self):
        pick = self.draw.choice
        heads, kv_heads = pick([(4, 2), (2, 2), (3, 1), (8, 1)])
        size = pick([8, 16, 24, 64])
        qkv = self.product(pick(self.values), self.matrix((heads + 2 * kv_heads) * size))
        attended = self.made.attention(
            self.name(), qkv, heads=heads, kv_heads=kv_heads, size=size,
            window=pick([0, 0, 1, 3, 17]), dtype=pick(["float32", "float16"]),
            paged=pick([True, False]), pairs=pick([size // 2, 0, 1, size // 4]),
            rotation=pick(["halves", "interleaved"]),
        )  # fmt: skip
        for _ in range(pick([1, 1, 2])):
            residual = self.residual(self.values)
            weight = self.matrix(COLUMNS, heads * size)
            self.values.append(self.made.linear(self.name(), attended, weight, residual))

    def add_gates(self):
        values, gates = self.latest(), self.draw.choice([32, 96])
        gate_up = self.product(self.draw.choice(values), self.matrix(2 * gates))
        hidden = self.made.add("silu_mul", self.name(), {"x": gate_up})
        weight, residual = self.matrix(COLUMNS, gates), self.draw.choice(values)
        self.append(self.made.linear(self.name(), hidden, weight, residual))

    def add_product(self):
        values = self.latest()
        x, residual = self.draw.choice(values), self.residual(values)
        self.append(self.made.linear(self.name(), x, self.matrix(COLUMNS), residual))

    def add_sum(self):
        values = self.latest()
        inputs = {"a": self.draw.choice(values), "b": self.draw.choice(values)}
        self.append(self.made.add("add", self.name(), inputs))

    def add_selected(self):
        rows = self.made.select(self.name(), self.draw.choice(self.values))
        self.chosen.append(rows)
        residual = self.residual(self.latest())
        weight = self.matrix(COLUMNS)
        self.selected.append(self.made.linear(self.name(), rows, weight, residual))

    def latest(self):
        """Return the values that a node may read which is added now."""
        return [*self.selected, *self.chosen] or self.values

    def append(self, value):
        (self.selected or self.values).append(value)

    def program(self):
        for _ in range(self.draw.randint(2, 7)):
            early = [self.add_attention] if not self.selected else []
            others = [self.add_gates, self.add_product, self.add_sum, self.add_selected]
            self.draw.choice([*early, *others])()
        values = [*self.values, *self.selected]
        given = [value for value in values if self.draw.random() < 0.3] or values[-1:]
        if self.selected:
            weight = self.matrix(self.draw.choice([30, 31, 77]))
            given.append(self.made.linear(self.name(), self.selected[-1], weight))
            given.append(self.made.add("argmax", self.name(), {"x": given[-1]}))
        return self.made.builder.program(given), self.made.tensors


@pytest.mark.sampled(2, "seed")
@pytest.mark.parametrize("seed", range(20))
def test_a_random_program(seed):
    program, tensors = RandomProgram(seed).program()
    reason = tensor_ops_cuda.supports_program(program.to_json())
    assert reason is None or "the cuda backend runs" in reason
    if reason is not None:
        return
    options = {"activations": ("int8x2", "float32")[seed % 2]}
    found = outputs(tensor_ops_cuda, program, tensors, num_workers=2, options=options)
    right = outputs(reference, program, tensors, options={"dtype": "float64"})
    check_errors(found, right, BOUND)
