"""Nodes that run together: they have the bits that they have alone, and the results of `reference`.

Outputs of the program are stored, so that the nodes before and after it run alone.
"""

import collections
import itertools

import numpy as np
import pytest

from node_programs import LIMITS, TOKENS, fill_step
from tensor_ops import backends
from tensor_ops_decode import reference
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Tensor
from tensor_ops_decode.program.builder import Builder

COLUMNS, WORDS = 40, 11
EXPERTS, CHOSEN = 5, 2
PRODUCTS = [
    kind
    for kind in KINDS.values()
    if kind.role == "product" and {slot.form for slot in kind.weights} == {"matrices", "biases"}
]


class RandomProgram:
    """Nodes that may run together, and others between them, in an order that a seed decides."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)
        self.builder, self.tensors, self.values = Builder(LIMITS), {}, []
        table = self.tensor("table", WORDS, COLUMNS)
        self.values.append(self.add("embed", {"tokens": "tokens"}, {"weight": table}))
        steps = [self.norm, self.product, self.normed, self.gated, self.sum, self.sum, self.scale]
        steps += [self.experts, self.experts, self.heads]
        for _ in range(int(self.draw.integers(3, 10))):
            self.values.append(steps[self.draw.integers(len(steps))](self.value()))
        self.names = [node.name for node in self.builder.nodes]

    def tensor(self, name, *shape):
        values = self.draw.standard_normal(shape) / COLUMNS**0.5
        self.tensors[name] = (values + (len(shape) == 1)).astype(np.float32)
        return self.builder.tensor(name, Tensor("f32", shape, {"attached": True}))

    def add(self, kind, inputs, weights=None, attributes=None):
        name = f"v{len(self.builder.nodes)}"
        return self.builder.add(kind, inputs, weights, attributes, output=name)

    def value(self):
        """Return one of the values so far, mostly the last one."""
        if self.draw.random() < 0.7:
            return self.values[-1]
        return self.values[self.draw.integers(len(self.values))]

    def norm(self, x):
        weight = {"weight": self.tensor(f"norm {len(self.tensors)}", COLUMNS)}
        kind = ("rms_norm", "layer_norm")[self.draw.integers(2)]
        return self.add(kind, {"x": x}, weight, {"eps": 1e-5})

    def product(self, x, rows=(COLUMNS,), columns=COLUMNS):
        name = f"matrix {len(self.tensors)}"
        weights = {"weight": [self.tensor(f"{name}.{n}", n, columns) for n in rows]}
        if self.draw.random() < 0.3:
            weights["bias"] = [self.tensor(f"{name}.{n}.bias", n) for n in rows]
        kind = PRODUCTS[self.draw.integers(len(PRODUCTS))]
        return self.add(kind.name, {"x": x}, weights, kind.samples[0].attributes)

    def normed(self, x):
        return self.product(self.norm(x))

    def gated(self, x):
        gate_up = self.product(x, rows=(25, 35))
        kind = ("silu_mul", "gelu_mul")[self.draw.integers(2)]
        attributes = {"approximate": "tanh"} if kind == "gelu_mul" else None
        gated = self.add(kind, {"x": gate_up}, None, attributes)
        return self.product(gated, columns=30)

    def experts(self, x):
        """Add a mixture of gated MLPs, or the product of one expert alone, which may be summed."""
        inner = int(self.draw.integers(1, 20))
        logits = self.add(
            "linear", {"x": x}, {"weight": self.tensor(f"{x}.router", EXPERTS, COLUMNS)}
        )
        is_alone = self.draw.random() < 0.4
        name, count = f"v{len(self.builder.nodes)}", 1 if is_alone else CHOSEN
        outputs = {"weights": name, "chosen": f"{name}.chosen"}
        of_route = KINDS["route"].samples[0].attributes | {"top_k": count}
        self.builder.add("route", {"x": logits}, None, of_route, output=outputs)
        if is_alone:
            normed = self.norm(x) if self.draw.random() < 0.5 else x
            return self.expert_linear(normed, outputs["chosen"], (COLUMNS,), COLUMNS, 1, 1)
        gate_up = self.expert_linear(x, outputs["chosen"], (inner, inner), COLUMNS, 1, 2)
        gated = self.add("silu_mul", {"x": gate_up})
        down = self.expert_linear(gated, outputs["chosen"], (COLUMNS,), inner, CHOSEN, 1)
        return self.add("combine", {"weights": name, "x": down})

    def expert_linear(self, x, chosen, rows, columns, *parts):
        name = f"experts {len(self.tensors)}"
        stacks = [self.tensor(f"{name}.{i}", EXPERTS, n, columns) for i, n in enumerate(rows)]
        weights = {"weight": stacks}
        if self.draw.random() < 0.3:
            weights["bias"] = [
                self.tensor(f"{name}.{i}.bias", EXPERTS, n) for i, n in enumerate(rows)
            ]
        attributes = dict(zip(("input_parts", "output_parts"), parts, strict=True))
        attributes["num_experts"] = EXPERTS
        return self.add("expert_linear", {"x": x, "chosen": chosen}, weights, attributes)

    def heads(self, x):
        """Add a product with a matrix for each head, of a norm or not, which may be summed."""
        heads = int(self.draw.choice([1, 2, 4]))
        size, normed = COLUMNS // heads, self.norm(x) if self.draw.random() < 0.5 else x
        columns = int(self.draw.integers(1, size + 1))
        weight = {"weight": self.tensor(f"heads {len(self.tensors)}", heads, size, columns)}
        return self.add("head_linear", {"x": normed}, weight, {"num_heads": heads})

    def sum(self, x):
        pair = [x, self.values[self.draw.integers(len(self.values))]]
        self.draw.shuffle(pair)
        return self.add("add", dict(zip("ab", map(str, pair), strict=True)))

    def scale(self, x):
        return self.add("scale", {"x": x}, None, {"factor": 0.5})


def run(executor, program, tensors, **given):
    """Return the last value of a step, and which nodes ran together."""
    executable = executor.compile_program(program.to_json(), tensors, **given)
    fill_step(executable.arrays)
    executable.run(TOKENS, 0)
    last = program.nodes[-1].name
    found = executable.arrays[last].copy()
    phases = getattr(executable, "phases", None)
    executable.close()
    return found, phases


@pytest.fixture(scope="module")
def cpp():
    backend = backends.load("cpp")
    return backend.module if backend.reason is None else pytest.skip(backend.reason)


def test_results_do_not_depend_on_what_runs_together(cpp, request):
    num_programs = 1000 if request.config.getoption("--nightly") else 250
    several = num_programs // 100
    together = collections.Counter()
    for seed in range(num_programs):
        made = RandomProgram(seed)
        *_, last = made.names
        program = made.builder.program([last])
        found, phases = run(cpp, program, made.tensors, num_workers=1 + seed % 2)
        alone, of_each = run(cpp, made.builder.program(made.names), made.tensors, num_workers=1)
        assert of_each == [[n] for n in range(len(made.names))], seed
        assert found.tobytes() == alone.tobytes(), f"seed {seed}: {program}"
        assert sorted(itertools.chain(*phases)) == list(range(len(made.names))), seed
        together.update("+".join(program.nodes[n].kind for n in each) for each in phases)
        if seed % 10 == 0:
            right, _ = run(reference, program, made.tensors, options={"dtype": "float64"})
            scale = np.abs(right).max()
            np.testing.assert_allclose(found / scale, right / scale, atol=1e-5, err_msg=f"{seed}")
    befores = ("", "rms_norm+", "layer_norm+", "silu_mul+", "gelu_mul+")
    for product, before, after in itertools.product(PRODUCTS, befores, ("", "+add")):
        assert together[f"{before}{product.name}{after}"] > several, together
    for form in (
        "expert_linear",
        "silu_mul+expert_linear",
        "expert_linear+add",
        "head_linear+add",
        "rms_norm+head_linear",
    ):
        assert together[form] > several, together
    normed = (together[f"{norm}+expert_linear"] for norm in ("rms_norm", "layer_norm"))
    assert sum(normed) > several
    assert all(KINDS[kind].role for form in together if "+" in form for kind in form.split("+"))
