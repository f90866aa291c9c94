"""Programs whose selected rows are multiplied and added have the results of the reference."""

import pytest
from small_programs import COLUMNS, FEW_TOKENS, GATES, STEPS, assert_right

import tensor_ops_cuda

pytestmark = pytest.mark.usefixtures("device")

# More: of a prompt that runs in two groups of tokens the last one, or the first one, alone; and
# two requests of which one selects nothing.
SELECTIONS = [
    *STEPS,
    ([2] * 11, range(2, 13), [10]),
    ([2] * 11, range(13, 24), [0]),
    ([1, 1, 2, 2], [7, 8, 24, 25], [3]),
]


def rows_selected_long_before(made):
    """The memory of x must not be used again while they are still to be read."""
    made.select("s", "x")
    value = "x"
    for name in ("a", "b", "c", "d"):
        value = made.linear(name, value)
    made.linear("y", "s")
    return ["y", "d"]


def rows_selected_twice(made):
    made.select("s", "x")
    made.select("t", "x")
    made.linear("y", "s")
    made.linear("z", "t", residual="y")
    made.linear("v", "s", residual="z")
    return ["y", "v", "x"]


def layers_of_selected_rows(made):
    made.select("s", "x")
    made.linear("y", "s")
    made.gated("z", "y", "y")
    return ["z"]


def mlp_of_selected_rows(made):
    made.linear("y", "x")
    made.select("s", "y")
    return [made.gated("z", "s", "s")]


def residual_that_is_multiplied_too(made):
    made.select("s", "x")
    return [made.linear("y", "s", residual="s")]


def residuals_selected_long_before(made):
    """The memory of x must not be used again while they are still to be read."""
    made.select("s", "x")
    value = "x"
    for name in ("a", "b", "c", "d"):
        value = made.linear(name, value)
    made.select("t", value)
    made.linear("y", "t")
    made.gated("z", "t", "s")
    return [made.linear("v", "z", residual="s"), "d"]


def sums_of_selected_rows(made):
    made.linear("p", "x")
    made.select("s", "x")
    made.select("t", "p")
    made.linear("y", "s")
    for output, a, b in (("z", "s", "t"), ("u", "y", "s"), ("v", "t", "z"), ("w", "s", "s")):
        made.add("add", output, {"a": a, "b": b})
    return ["z", "u", "v", "w"]


def sums_selected_long_before(made):
    made.select("s", "x")
    value = "x"
    for name in ("a", "b", "c"):
        value = made.linear(name, value)
    made.select("t", value)
    made.linear("y", "t")
    made.linear("z", "y")
    made.add("add", "u", {"a": "s", "b": "z"})
    return [made.add("add", "v", {"a": "u", "b": "t"})]


def sums_of_selected_rows_over_ranks(made):
    made.select("s", "x")
    made.linear("y", "s")
    made.add("allreduce", "r", {"x": "y"})
    made.add("add", "z", {"a": "r", "b": "r"})
    return ["r", "z"]


def mlp_of_selected_rows_over_ranks(made):
    """As a shard has it: what is selected is a sum over ranks."""
    made.linear("part", "x")
    made.add("allreduce", "r", {"x": "part"})
    made.add("add", "y", {"a": "r", "b": "x"})
    made.select("s", "y")
    made.linear("gates", "s", made.matrix("up", 2 * GATES))
    made.add("silu_mul", "hidden", {"x": "gates"})
    made.linear("down", "hidden", made.matrix("down.weight", COLUMNS, GATES))
    made.add("allreduce", "q", {"x": "down"})
    made.add("add", "z", {"a": "q", "b": "s"})
    return [made.linear("v", "z"), "y"]


PROGRAMS = [
    rows_selected_long_before,
    rows_selected_twice,
    layers_of_selected_rows,
    mlp_of_selected_rows,
    residual_that_is_multiplied_too,
    residuals_selected_long_before,
    sums_of_selected_rows,
    sums_selected_long_before,
    sums_of_selected_rows_over_ranks,
    mlp_of_selected_rows_over_ranks,
]


def name_of(build):
    return build.__name__.replace("_", " ")


@pytest.mark.parametrize("build", PROGRAMS, ids=name_of)
def test_selected_rows_are_those_of_the_tokens(build):
    assert_right(tensor_ops_cuda, build, SELECTIONS)


@pytest.mark.usefixtures("some_warp_is_behind")
@pytest.mark.parametrize("build", PROGRAMS, ids=name_of)
def test_what_is_selected_lasts_until_the_slowest_warp_has_read_it(build):
    assert_right(tensor_ops_cuda, build, FEW_TOKENS)
