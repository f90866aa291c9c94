"""Shards of programs: what ranks have, what is refused, and that together they are the whole."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from random_models import LIMITS, TYPES, RandomModel
from running_shards import Shards
from tensor_ops_decode import KINDS, Program, ProgramError, reference, shard
from tensor_ops_decode.kinds.kind import Weight
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.records import Limits, Tensor
from whole_programs import base_program

SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(6, 60))]
# Ranks add in another order than one does. Beside integers some activations round to the neighbour
# then. What is added twice, or not at all, changes far more.
BOUND, INTEGER_BOUND = 1e-4, 3e-3


def most_ranks(program):
    """Return the largest number of ranks, which the error of a larger one names."""
    with pytest.raises(ProgramError, match="world_size must be at most") as raised:
        shard(program, 0, 10_000)
    return int(re.search(r"at most (\d+)", str(raised.value))[1])


def divided_bytes(program, ending):
    """Return the bytes of the matrices of some products."""
    names = {
        name
        for node in program.nodes
        for name in node.weights.get("weight", ())
        if re.search(rf"(^|\.){ending}(\.\d)?(\[.*\])?$", name) and node.kind != "embed"
    }
    return sum(program.tensors[name].num_bytes for name in names)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_program_of_one_rank_is_the_whole_one(seed):
    program = RandomModel(seed).program
    assert shard(program, 0, 1) is program


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ranks_have_each_matrix_once(seed):
    model = RandomModel(seed)
    program, most = model.program, most_ranks(model.program)
    for world_size in {2, 3, most} & set(range(2, most + 1)):
        parts = [shard(program, rank, world_size) for rank in range(world_size)]
        for part in parts:
            assert Program.from_json(part.to_json()) == part
            assert (part.limits, part.outputs) == (program.limits, program.outputs)
        for ending in ("o", "gate_up", "down", "head" if "head" in program.tensors else "table"):
            sizes = [divided_bytes(part, ending) for part in parts]
            assert sum(sizes) == divided_bytes(program, ending) > 0
        of_caches = [part.caches["0.cache"].num_kv_heads for part in parts]
        assert sum(of_caches) == max(world_size, model.groups)


@pytest.mark.parametrize("world_size", [2, 3, 5, 8, 11, 16])
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_ranks_have_as_many_bytes_as_blocks_and_groups_allow(kind, world_size):
    large = {"groups": 8, "per_group": 2, "inner": 20, "vocabulary": 97, "size": 64}
    model = RandomModel(3, kind=kind, has_head=True, **large)
    program = model.program
    parts = [shard(program, rank, world_size) for rank in range(world_size)]
    row, heads = program.tensors["head"].row_bytes, model.per_group if world_size <= 8 else 1
    columns = {
        name: program.tensors[f"0.{name}.0"].num_bytes // program.tensors[f"0.{name}.0"].shape[1]
        for name in ("o", "down")
    }
    units = {
        "o": heads * model.size * columns["o"],
        "gate_up": 2 * 2 * model.block * row,  # of two layers
        "down": 2 * model.block * columns["down"],
        "head": row,
    }
    units["o"] *= 2
    for ending, unit in units.items():
        sizes = [divided_bytes(part, ending) for part in parts]
        assert max(sizes) - min(sizes) <= unit


def fill(arrays):
    """Write a step of two requests, of which not all tokens are selected."""
    arrays["tokens"][:6] = [1, 5, 2, 7, 7, 0]
    arrays["positions"][:6] = [0, 1, 2, 3, 0, 1]
    arrays["slots"][:6] = [0, 0, 0, 0, 1, 1]
    arrays["page_table"][:] = np.arange(16).reshape(2, 8)
    arrays["selected"][:3] = [2, 3, 5]


def results(executor, model, world_size):
    """Return the outputs of each rank."""
    options = {"dtype": "float64"} if executor.__name__.endswith("reference") else {}
    shards = Shards(executor, model.program, model.tensors, world_size, **options)
    shards.run(fill, 6, 3)
    found = [shards.output(name, 3) for name in model.program.outputs]
    shards.close()
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_compute_what_one_does(executor, seed):
    model = RandomModel(seed)
    if (reason := executor.supports_program(model.program.to_json())) is not None:
        pytest.skip(reason)
    ((right,), _) = results(executor, model, 1)
    assert np.ptp(right) > 0.5
    are_exact = model.block == 1 or executor.__name__.endswith("reference")
    most = most_ranks(model.program)
    for world_size in {2, 3, most} & set(range(2, most + 1)):
        logits, tokens = results(executor, model, world_size)
        assert all(np.array_equal(each, logits[0]) for each in logits)
        assert all(np.array_equal(each, tokens[0]) for each in tokens)
        assert np.abs(logits[0] - right).max() < (BOUND if are_exact else INTEGER_BOUND)


@pytest.mark.parametrize("kind", TYPES)
def test_quantized_rows_are_cut_between_blocks(kind):
    sizes = {"groups": 4, "per_group": 2, "inner": 4, "size": 128}
    model = RandomModel(1, kind=kind, is_gemma=False, **sizes)
    whole = model.program.tensors["0.o.0"]
    for rank in range(4):
        tensor = shard(model.program, rank, 4).tensors[f"0.o.0[:,{rank * 256}:{rank * 256 + 256}]"]
        assert tensor.shape == (model.hidden, 256)
        assert 4 * tensor.row_bytes == whole.row_bytes


def test_residuals_and_biases_are_added_once():
    given = {"has_head": True, "o_bias": True, "down_bias": True, "is_gemma": False}
    program = RandomModel(0, groups=2, per_group=1, kind="f32", **given).program
    parts = [shard(program, rank, 2) for rank in range(2)]
    for part, has_bias in zip(parts, (True, False), strict=True):
        nodes = {node.name: node for node in part.nodes}
        for name in ("0.attended", "0.output"):
            product = nodes[f"{name}.product.share"]
            assert product.kind == "linear"
            assert ("bias" in product.weights) == has_bias
            assert nodes[f"{name}.product"].kind == "allreduce"
            assert nodes[name].kind == "add"


def test_a_norm_behind_a_product_is_of_the_sum():
    program = RandomModel(0, groups=2, per_group=1, kind="f32", is_gemma=True).program
    nodes = {node.name: node for node in shard(program, 0, 2).nodes}
    assert nodes["0.attended.product"].kind == "allreduce"
    assert nodes["0.attended.normed"].inputs == {"x": "0.attended.product"}
    assert nodes["logits.share"].kind == "soft_cap"
    assert nodes["logits"].kind == "allgather"


def test_ranks_add_the_selected_rows_alone_where_those_are_left():
    program = RandomModel(0, groups=2, per_group=1, kind="f32", selects_early=True).program
    values = shard(program, 0, 2).values
    rows = [values[f"{layer}.output.product.share"].rows for layer in range(2)]
    assert rows == ["tokens", "selected"]


PLAIN = {"groups": 2, "per_group": 1, "kind": "f32", "is_gemma": False}


@pytest.mark.parametrize("value", ["0.qkv", "0.heads"])
def test_attention_of_which_a_caller_reads_is_computed_by_every_rank(value):
    program = RandomModel(0, **PLAIN).program
    program = dataclasses.replace(program, outputs=(*program.outputs, value))
    part = shard(program, 1, 2)
    assert {name: part.caches[name].num_kv_heads for name in part.caches} == {
        "0.cache": 2,
        "1.cache": 1,
    }
    assert part.values[value] == program.values[value]
    nodes = {node.name: node.kind for node in part.nodes}
    assert nodes["0.attended.product"] == "linear"
    divided = [nodes[f"{each}.product"] for each in ("0.output", "1.attended", "1.output")]
    assert divided == ["allreduce"] * 3


def test_an_mlp_whose_columns_another_node_reads_is_computed_by_every_rank():
    builder = Builder(LIMITS)

    def tensor(name, rows, columns):
        return builder.tensor(name, Tensor("f32", (rows, columns), {"attached": True}))

    x = builder.add("embed", {"tokens": "tokens"}, {"weight": tensor("t", 9, 8)}, output="x")
    wide = builder.add("linear", {"x": x}, {"weight": tensor("up", 16, 8)}, output="wide")
    gated = builder.add("silu_mul", {"x": wide}, output="gated")
    y = builder.add("linear", {"x": gated}, {"weight": tensor("down", 8, 8)}, output="y")
    z = builder.add("add", {"a": y, "b": gated}, output="z")  # which must be whole
    builder.add("linear", {"x": z}, {"weight": "t"}, output="logits")
    kinds = [node.kind for node in shard(builder.program(["logits"]), 0, 2).nodes]
    assert kinds == ["embed", "linear", "silu_mul", "linear", "add", "linear", "allgather"]


def test_numbers_that_scale_columns_are_within_what_ranks_divide():
    """They stand before the middle of an MLP, behind it, and behind logits."""
    builder, draw, tensors = Builder(LIMITS), np.random.default_rng(0), {}

    def tensor(name, rows, columns):
        tensors[name] = draw.standard_normal((rows, columns)).astype(np.float32)
        return builder.tensor(name, Tensor("f32", (rows, columns), {"attached": True}))

    def scaled(x, output):
        return builder.add("scale", {"x": x}, None, {"factor": 0.5}, output=output)

    x = builder.add("embed", {"tokens": "tokens"}, {"weight": tensor("t", 9, 8)}, output="x")
    wide = builder.add("linear", {"x": x}, {"weight": tensor("up", 20, 8)}, output="wide")
    gated = builder.add("silu_mul", {"x": scaled(wide, "half")}, output="gated")
    y = builder.add(
        "linear", {"x": scaled(gated, "quarter")}, {"weight": tensor("down", 8, 10)}, output="y"
    )
    last = builder.add("select", {"x": y}, output="last")
    raw = builder.add("linear", {"x": last}, {"weight": "t"}, output="raw")
    builder.add("argmax", {"x": scaled(raw, "logits")}, output="next")
    model = SimpleNamespace(program=builder.program(["logits", "next"]), tensors=tensors)
    part = shard(model.program, 2, 3)
    assert part.values["half"].columns == 2 * part.values["quarter"].columns == 8
    assert part.nodes[-2].inputs == {"x": "logits.share"}
    ((right,), _) = results(reference, model, 1)
    for logits in results(reference, model, 3)[0]:
        assert np.abs(logits - right).max() < BOUND


def with_products_of(kind, program, monkeypatch):
    """Return a program whose products are of another kind."""
    monkeypatch.setitem(KINDS, kind.name, kind)
    nodes = (
        dataclasses.replace(node, kind=kind.name) if node.kind == "linear" else node
        for node in program.nodes
    )
    return dataclasses.replace(program, nodes=tuple(nodes))


def test_another_kind_of_product_is_divided_as_linear_is(monkeypatch):
    program = RandomModel(0, **PLAIN, o_bias=True).program
    other = dataclasses.replace(KINDS["linear"], name="other")
    for rank in range(2):
        part = shard(with_products_of(other, program, monkeypatch), rank, 2)
        assert part == with_products_of(other, shard(program, rank, 2), monkeypatch)


def test_a_product_with_other_weights_than_its_matrices_is_computed_by_every_rank(monkeypatch):
    linear = KINDS["linear"]
    weights = (*linear.weights, Weight("scale", "vector", "N", optional=True))
    other = dataclasses.replace(linear, name="other", weights=weights)
    program = with_products_of(other, RandomModel(0, **PLAIN).program, monkeypatch)
    with pytest.raises(ProgramError, match="the program has none of these"):
        shard(program, 0, 2)


def test_names_of_a_shard_are_new():
    model = RandomModel(0, **PLAIN, has_head=True)
    tensors, values = dict(model.program.tensors), dict(model.program.values)
    taken = f"0.o.0[:,0:{model.size}]"
    tensors[taken] = tensors["norm"]
    nodes, name = list(model.program.nodes), "0.output.product.share"
    for index, node in enumerate(nodes):
        if node.name == "0.qkv.normed":
            nodes[index] = dataclasses.replace(node, name=name, outputs={"output": name})
        if node.name == "0.qkv":
            nodes[index] = dataclasses.replace(node, inputs={"x": name})
    values[name] = values.pop("0.qkv.normed")
    changed = {"tensors": tensors, "values": values, "nodes": tuple(nodes)}
    part = shard(dataclasses.replace(model.program, **changed), 0, 2)
    assert part.values[name] == values[name]
    assert next(node for node in part.nodes if node.name == f"{name}'").kind == "linear"
    assert f"{taken}'" in part.tensors


def file_program(kinds, columns=512):
    """Return a program with one MLP, whose matrices are in a file and are changed on the way."""
    builder = Builder(LIMITS)

    def tensor(name, rows, of, *transform, kind="q8_0"):
        source = {"file": "a.gguf", "tensor": name, "transform": list(transform)}
        return builder.tensor(name, Tensor(kind, (rows, of), source))

    table = tensor("table", 64, 256, "quantize:q8_0")
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    up = tensor("up", 2 * columns, 256, "transpose", "quantize:q8_0")
    wide = builder.add("linear", {"x": x}, {"weight": up}, output="wide")
    down = tensor("down", 256, columns, *kinds)
    hidden = builder.add("silu_mul", {"x": wide}, output="hidden")
    product = builder.add("linear", {"x": hidden}, {"weight": down}, output="product")
    mlp = builder.add("add", {"a": product, "b": x}, output="mlp")
    logits = builder.add("linear", {"x": mlp}, {"weight": table}, output="logits")
    return builder.program([logits])


def transform(program, name):
    return program.tensors[name].source["transform"]


def test_what_is_cut_off_is_not_quantized():
    part = shard(file_program(["quantize:q8_0"]), 1, 2)
    assert transform(part, "up[256:512]") == ["transpose", "rows:256:512", "quantize:q8_0"]
    assert transform(part, "up[768:1024]") == ["transpose", "rows:768:1024", "quantize:q8_0"]
    assert transform(part, "down[:,256:512]") == ["columns:256:512", "quantize:q8_0"]
    assert transform(part, "table[32:64]") == ["rows:32:64", "quantize:q8_0"]
    assert transform(part, "table") == ["quantize:q8_0"]  # rows are looked up in all of it


def test_columns_are_cut_behind_where_the_file_may_have_larger_blocks():
    part = shard(file_program(["quantize:q8_0"]), 0, 4)
    assert transform(part, "down[:,0:128]") == ["quantize:q8_0", "columns:0:128"]
    part = shard(file_program(["quantize:q8_0"], columns=96), 0, 3)  # which K formats cannot have
    assert transform(part, "down[:,0:32]") == ["columns:0:32", "quantize:q8_0"]


@pytest.mark.parametrize(
    ("rank", "world_size", "error", "words"),
    [
        (0, 0, ValueError, "world_size must be at least 1, got 0"),
        (2, 2, ValueError, "rank must be from 0 to 1, got 2"),
        (-1, 2, ValueError, "rank must be from 0 to 1, got -1"),
        (0, 2.0, TypeError, "integer"),
    ],
)
def test_a_rank_that_is_none_is_refused(rank, world_size, error, words):
    with pytest.raises(error, match=words):
        shard(RandomModel(0).program, rank, world_size)


def test_more_ranks_than_heads_are_refused():
    program = RandomModel(0, groups=3, per_group=2, inner=4, kind="f32").program
    assert shard(program, 5, 6).caches["0.cache"].num_kv_heads == 1
    words = "at most 6, got 7: '0.attended.*' divides 6 heads of . elements in 3 groups"
    with pytest.raises(ProgramError, match=words):
        shard(program, 0, 7)


def test_more_ranks_than_blocks_are_refused():
    program = RandomModel(0, groups=3, per_group=2, inner=1, kind="q8_0", size=32).program
    words = "at most 1, got 2: '0.output.*' divides 32 columns of gate and up, in whole blocks"
    with pytest.raises(ProgramError, match=words):
        shard(program, 0, 2)


def test_the_program_of_a_rank_is_refused():
    program = RandomModel(0, groups=2, per_group=1, kind="f32").program
    words = "shard: allreduce '.*' exchanges values among ranks already; give a program that one"
    with pytest.raises(ProgramError, match=words):
        shard(shard(program, 0, 2), 0, 2)
    with pytest.raises(ProgramError, match=words):
        shard(base_program(), 0, 2)


def test_a_program_without_anything_to_divide_is_refused():
    builder = Builder(Limits(1, 4, 1, 16, 4, 4))
    table = builder.tensor("table", Tensor("f32", (10, 8), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    builder.add("argmax", {"x": x}, output="next")
    with pytest.raises(ProgramError, match="ranks can divide attention, gated MLPs and logits"):
        shard(builder.program(["next"]), 0, 2)
