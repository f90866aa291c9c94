"""Every node on every executor: its samples, within the bound that stands beside it."""

from dataclasses import replace

import numpy as np
import pytest

from node_programs import TOKENS, TYPES, fill_step, holds, node_program
from tensor_ops_decode import reference
from tensor_ops_decode.kinds.kind import KeysAndValues, Sample
from tensor_ops_decode.nodes import KINDS

SELECTED = [1, 4, TOKENS - 1]
SAMPLES = [
    pytest.param(kind, sample, id=f"{name}-{sample.name}")
    for name, kind in KINDS.items()
    for sample in kind.samples
]


STORED = [
    pytest.param(kind, sample, weight_type, id=f"{name}-{sample.name}-{weight_type}")
    for name, kind in KINDS.items()
    for sample in kind.samples
    for weight_type in TYPES[1:]
    if "weight" in sample.weights and len(sample.weights["weight"][0]) > 1
    if all(holds(weight_type, columns) for *_, columns in sample.weights["weight"])
]


OF_KEYS = [each for each in SAMPLES if isinstance(each.values[0].cache, KeysAndValues)]
NORMED, GATED = "rms_norm_linear", "silu_mul_linear_with_residual"
#: A product with what executors run together with it, as the nodes of version 1 that stand for it.
TOGETHER = [
    (NORMED, Sample("usual", {"x": 64}, {"norm": [(64,)], "weight": [(48, 64)]}, {"eps": 1e-5})),
    (
        NORMED,
        Sample(
            "two matrices with biases",
            {"x": 96},
            {"norm": [(96,)], "weight": [(40, 96), (9, 96)], "bias": [(40,), (9,)]},
            {"eps": 1e-6},
        ),
    ),
    (GATED, Sample("usual", {"x": 192, "residual": 40}, {"weight": [(40, 96)]})),
    (GATED, Sample("bias", {"x": 128, "residual": 7}, {"weight": [(7, 64)], "bias": [(7,)]})),
    ("linear", Sample("residual", {"x": 128, "residual": 40}, {"weight": [(40, 128)]})),
]


def expected(monkeypatch, program, tensors, kind, activations):
    """Return the outputs of a step in float64, side by side, and their bounds."""
    bounds = []

    def compute(call):
        output = kind.compute(call)
        found = kind.bound(call, output, activations)
        bounds.append(np.concatenate(found) if len(kind.outputs) > 1 else found)
        return output

    with monkeypatch.context() as patch:
        patch.setitem(KINDS, kind.name, replace(kind, compute=compute))
        output, rows = run(reference, program, tensors, {"dtype": "float64"})
    # Inputs of the node may be nodes of the same kind, whose bounds come first.
    return output, np.array(bounds[-rows:])


def expected_together(monkeypatch, program, tensors, activations):
    """Return such an output and its bound, of nodes of which one is a product."""
    bounds = {node.kind: [] for node in program.nodes if node.kind != "embed"}

    def computing(kind):
        def compute(call):
            output = kind.compute(call)
            bounds[kind.name].append(kind.bound(call, output, activations))
            if kind.role == "product":
                bounds["magnitude"] = np.abs(call.weights["weight"])
            return output

        return compute

    with monkeypatch.context() as patch:
        for name in list(bounds):
            patch.setitem(KINDS, name, replace(KINDS[name], compute=computing(KINDS[name])))
        output, _ = run(reference, program, tensors, {"dtype": "float64"})
    magnitude = bounds.pop("magnitude")
    of_output = [np.array(bounds.pop(name)) for name in ("linear", "add") if name in bounds]
    before = [np.array(each) @ magnitude.T for each in bounds.values()]
    return output, sum(of_output + before)


def run(executor, program, tensors, options):
    executable = executor.compile_program(program.to_json(), tensors, options=options)
    fill_step(executable.arrays, selected=SELECTED)
    executable.run(TOKENS, len(SELECTED))
    rows = TOKENS if program.values["output"].rows == "tokens" else len(SELECTED)
    output = np.concatenate([executable.arrays[name][:rows] for name in program.outputs], axis=1)
    executable.close()
    return output, rows


def check(monkeypatch, executor, kind, sample, activations="float32", **given):
    program, tensors = node_program(kind.name, sample, **given)
    output = computed(executor, program, tensors, activations)
    compare(output, *expected(monkeypatch, program, tensors, kind, activations))


def computed(executor, program, tensors, activations):
    options = {} if executor is reference else {"activations": activations}
    return run(executor, program, tensors, options)[0]


def compare(output, right, bound):
    error = np.abs(output.astype(np.float64) - right)
    assert np.all(error <= bound), f"{(error / bound).max():.3g} times the bound"


def rounded_to(executor, weight_type):
    """Return what an executor may round activations to beside weights of a type."""
    rounded = {"q": ["int8x2", "int8"], "b": ["bfloat16"]}.get(weight_type[0], [])
    return ["float32", *(rounded if executor is not reference else [])]


@pytest.mark.parametrize(("kind", "sample"), SAMPLES)
def test_float32(monkeypatch, executor, kind, sample):
    check(monkeypatch, executor, kind, sample)


@pytest.mark.parametrize(("kind", "sample", "weight_type"), STORED)
def test_stored_weights(monkeypatch, executor, kind, sample, weight_type):
    for activations in rounded_to(executor, "f32" if kind.name == "embed" else weight_type):
        check(monkeypatch, executor, kind, sample, activations, weight_type=weight_type)


@pytest.mark.parametrize(
    ("kind", "sample", "weight_type"),
    [
        pytest.param(kind, sample, weight_type, id=f"{kind}-{sample.name}-{weight_type}")
        for kind, sample in TOGETHER
        for weight_type in TYPES
        if all(holds(weight_type, columns) for _, columns in sample.weights["weight"])
    ],
)
def test_nodes_that_run_together(monkeypatch, executor, kind, sample, weight_type):
    program, tensors = node_program(kind, sample, weight_type)
    for activations in rounded_to(executor, weight_type):
        output = computed(executor, program, tensors, activations)
        compare(output, *expected_together(monkeypatch, program, tensors, activations))


@pytest.mark.parametrize(
    ("weight_type", "same"), [("q4_0", "int8x2"), ("f16", "float32"), ("f32", "float32")]
)
def test_bfloat16_activations_are_for_bf16_weights_only(executor, weight_type, same):
    if executor is reference:
        pytest.skip("it rounds no activations")

    def output(weight_type, activations):
        program, tensors = node_program("linear", KINDS["linear"].samples[0], weight_type)
        return computed(executor, program, tensors, activations)

    assert np.array_equal(output(weight_type, "bfloat16"), output(weight_type, same))
    assert not np.array_equal(output("bf16", "bfloat16"), output("bf16", same))


@pytest.mark.sampled(2, "paged", "cache_dtype")
@pytest.mark.parametrize("paged", [True, False])
@pytest.mark.parametrize("cache_dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("kind", "sample"), OF_KEYS)
def test_caches(monkeypatch, executor, kind, sample, cache_dtype, paged):
    check(monkeypatch, executor, kind, sample, cache_dtype=cache_dtype, paged=paged)
