"""Attention of odd sizes, and numbers at the edges of float32, beside the reference."""

import dataclasses

import numpy as np
import pytest
from largest_errors import SUMS_BOUND, check_errors
from random_llama import stored
from small_programs import COLUMNS, HEADS, SIZE, STEPS, Assembly, outputs

import tensor_ops_cuda
from tensor_ops_decode import reference

pytestmark = pytest.mark.usefixtures("device")


@dataclasses.dataclass(frozen=True)
class Case:
    """Attributes of attention, `dtype` and `paged` of its cache, and rotated `pairs`."""

    given: dict
    page: int = 4
    length: int = 40
    heads: tuple = (4, 2, 16)  # of queries, of keys, their size


# A request of more tokens than a span has positions, 12 at a time, and later one of few.
AROUND_A_SPAN = [
    *(([0] * 12, range(first, first + 12), [11]) for first in range(0, 264, 12)),
    *(([0, 1], [264 + each, each], [0, 1]) for each in range(3)),
]
ATTENTION = {
    "a window of 1": Case({"window": 1}),
    "a window longer than all": Case({"window": 1000}),
    "pages of 1": Case({}, page=1),
    "pages longer than all": Case({}, page=64),
    "pages of 7 and a window": Case({"window": 5}, page=7),
    "sequences of 1": Case({}, length=1, page=16),
    "heads of 8": Case({}, heads=(4, 1, 8)),
    "heads of 24": Case({"dtype": "float16"}, heads=(3, 3, 24)),
    "five heads on one": Case({}, heads=(5, 1, 16)),
    "three heads of 136 on one": Case({}, heads=(3, 1, 136)),
    "no rotation": Case({"pairs": 0}),
    "a rotated pair": Case({"pairs": 1}),
    "half of a head rotated": Case({"pairs": 4}),
    "interleaved pairs, half of a head": Case({"pairs": 4, "rotation": "interleaved"}),
    "no pages": Case({"paged": False}),
    "no scale": Case({"scale": 0.0}),
    "a scale below 0": Case({"scale": -3.0}),
}
LONG = {
    "a window of a span": Case({"window": 256}, length=280),
    "a window across spans": Case({"window": 3}, length=280, page=5),
}


def check_attention(case, steps):
    heads, kv_heads, size = case.heads
    made = Assembly(page=case.page, length=case.length)
    made.linear("q", "x", made.matrix("q.weight", (heads + 2 * kv_heads) * size))
    made.attention("a", "q", heads=heads, kv_heads=kv_heads, size=size, **case.given)
    made.linear("y", "a", made.matrix("y.weight", COLUMNS, heads * size), residual="x")
    program = made.builder.program(["y"])
    steps = [each for each in steps if max(each[1]) < case.length]
    found = outputs(tensor_ops_cuda, program, made.tensors, steps, num_workers=3)
    options = {"dtype": "float64"}
    right = outputs(reference, program, made.tensors, steps, options=options)
    # Keys and values in float16 are rounded alike, unless they are in the middle of two.
    check_errors(found, right, 1e-3 if case.given.get("dtype") == "float16" else SUMS_BOUND)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.sampled(2, "name")
def test_attention_at_the_edges(name):
    one = [([0, 1], [0, 0], [0]), ([2], [0], [])]
    check_attention(ATTENTION[name], [*one, *STEPS])


@pytest.mark.parametrize("name", LONG)
@pytest.mark.sampled(2, "name")
def test_attention_around_a_span(name):
    check_attention(LONG[name], AROUND_A_SPAN)


@pytest.mark.parametrize("head_size", [4, 12, 264])
def test_heads_that_are_not_run_are_refused(head_size):
    made = Assembly()
    made.linear("q", "x", made.matrix("q.weight", 3 * head_size))
    made.attention("a", "q", heads=1, kv_heads=1, size=head_size)
    made.linear("y", "a", made.matrix("y.weight", COLUMNS, head_size))
    reason = tensor_ops_cuda.supports_program(made.builder.program(["y"]).to_json())
    assert f"heads of a multiple of 8 elements, at most 256, got {head_size}" in reason


def at_one(value):
    def change(row):
        row[5] = value

    return change


def times(factor):
    def change(row):
        row *= np.float32(factor)

    return change


# Changes to a row of normal numbers.
ROWS = {
    "zeros": times(0),
    "negative zeros": times(-0.0),
    "large": times(1e30),
    "small": times(1e-30),
    "subnormal": times(1e-40),
    "of all magnitudes": lambda row: row.__imul__(10.0 ** np.linspace(-30, 30, row.size)),
    "one large number": at_one(1e34),
    "the largest number": at_one(3e38),
    "infinity": at_one(-np.inf),
    "NaN": at_one(np.nan),
}


def products(kind, eps, activations):
    """Return the results of a product of each row, normalised or not, and what is right."""
    made = Assembly()
    values = made.draw.standard_normal((len(ROWS), COLUMNS)).astype(np.float32)
    for row, change in zip(values, ROWS.values(), strict=True):
        change(row)
    table = made.tensors["table"]
    table[: len(ROWS)] = stored(values, "bf16")
    weight = made.matrix("weight", 40, kind=kind)
    if eps is None:
        made.linear("y", "x", weight)
    else:
        norm = made.tensor("norm", 1 + 0.1 * made.draw.standard_normal(COLUMNS))
        made.normed("y", "x", norm, weight, eps)
    program, found = made.builder.program(["y"]), []
    settings = {tensor_ops_cuda: {"activations": activations}, reference: {"dtype": "float64"}}
    for executor, options in settings.items():
        executable = executor.compile_program(program.to_json(), made.tensors, options=options)
        executable.arrays["tokens"][: len(ROWS)] = range(len(ROWS))
        executable.arrays["positions"][: len(ROWS)] = range(len(ROWS))
        with np.errstate(all="ignore"):
            executable.run(len(ROWS), 0)
        found.append(executable.arrays["y"][: len(ROWS)].copy())
        executable.close()
    return [dict(zip(ROWS, each, strict=True)) for each in found]


@pytest.mark.parametrize("activations", ["int8x2", "float32"])
@pytest.mark.parametrize("eps", [None, 0.0, 1e-5])
@pytest.mark.parametrize("kind", ["bf16", "q8_0", "q4_0"])
def test_numbers_at_the_edges(kind, eps, activations):
    found, right = products(kind, eps, activations)
    if kind != "bf16" and eps is None:
        # Sums are in units that are up to 4064 times less than the result.
        assert not np.isfinite(found.pop("the largest number")).all()
        if activations == "int8x2":  # An infinite activation has no scale.
            assert np.isnan(found.pop("infinity")).all()
    wrong = []
    for name, result in found.items():
        expected = right[name].astype(np.float64)
        finite = np.isfinite(expected)
        is_alike = all((f(result) == f(expected)).all() for f in (np.isnan, np.isinf))
        with np.errstate(invalid="ignore"):
            error = np.abs(result - expected)[finite].max(initial=0)
        # Tensor cores take what is below float32's normal numbers for 0, or nearly so.
        bound = 1e-3 * np.abs(expected[finite]).max(initial=0) + 1e-38
        print(f"{name}: largest error {error:.2g}, bound {bound:.2g}")
        if not (is_alike and error <= bound):
            wrong.append(name)
    assert not wrong


# One of others of a warp, of others of a block, and one that its warp has alone.
@pytest.mark.parametrize("place", [3, 8, 64])
def test_a_score_that_is_nan_makes_all_of_attention_nan(place):
    """A key is infinite in float16, and queries are 0 there."""
    made = Assembly(length=80)
    made.tensors["table"][:, 0] = 0
    made.tensors["table"][7, 0] = 0x3F80  # 1, of the token that has a large key
    parts = [
        made.matrix(f"{name}.weight", rows) for name, rows in (("q", 64), ("k", 32), ("v", 32))
    ]
    for name in parts:
        made.tensors[name][:, 0] = 0
    made.tensors["q.weight"].reshape(HEADS, SIZE, COLUMNS)[:, [3, 3 + SIZE // 2]] = 0
    made.tensors["k.weight"][3, 0] = 0x4974  # 1e6
    made.add("linear", "q", {"x": "x"}, weight=parts)
    made.attention("a", "q", dtype="float16")
    made.linear("y", "a")
    program, found = made.builder.program(["y"]), []
    executable = tensor_ops_cuda.compile_program(program.to_json(), made.tensors, num_workers=3)
    arrays = executable.arrays
    arrays["page_table"][0] = np.arange(arrays["page_table"].shape[1])
    for position in range(place + 10):
        arrays["tokens"][position % 12] = 7 if position == place else 3
        arrays["positions"][position % 12] = position
        if position % 12 == 11 or position == place + 9:
            count = position % 12 + 1
            executable.run(count, 0)
            found += np.isnan(arrays["y"][:count]).all(axis=1).tolist()
    executable.close()
    assert found == [False] * place + [True] * 10
