"""Nodes that read the keys and values of another: what a program may have, and their results."""

import dataclasses
import json

import numpy as np
import pytest

from node_programs import LIMITS, TOKENS, fill_step, node_program
from tensor_ops_decode import reference, shard
from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.nodes import KINDS
from tensor_ops_decode.program import Program, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.step_reads import StepReads

SAMPLES = {sample.name: sample for sample in KINDS["shared_attention"].samples}
SELECTED = [2, 3, TOKENS - 1]


def whole():
    return node_program("shared_attention", SAMPLES["norms of values too"])


def with_selected(program):
    """Return the same program, whose node computes the selected tokens alone."""
    *before, reader = program.nodes
    builder = Builder(program.limits)
    for name, tensor in program.tensors.items():
        builder.tensor(name, tensor)
    builder.cache("cache", program.caches["cache"])
    builder.add_nodes(before)
    selected = builder.add("select", {"x": reader.inputs["q"]}, output="selected")
    builder.add_nodes([dataclasses.replace(reader, inputs={"q": selected})])
    return builder.program(program.outputs)


def output(executor, program, tensors):
    executable = executor.compile_program(program.to_json(), tensors)
    fill_step(executable.arrays, selected=SELECTED)
    executable.run(TOKENS, len(SELECTED))
    found = executable.arrays["output"].copy()
    executable.close()
    return found


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("cache_dtype", ["float32", "int8"])
def test_selected_tokens_have_the_bits_of_all(executor, sample, cache_dtype):
    program, tensors = node_program("shared_attention", sample, cache_dtype=cache_dtype)
    of_all = output(executor, program, tensors)[SELECTED]
    few = with_selected(program)
    assert few.values["output"].rows == "selected"
    np.testing.assert_array_equal(output(executor, few, tensors)[: len(SELECTED)], of_all)


def changed(program, change):
    written = json.loads(program.to_json())
    change(written)
    return json.dumps(written)


def reads_first(written):
    """Put the node that reads before the one that writes."""
    written["nodes"].insert(-2, written["nodes"].pop())


def has_no_writer(written):
    written["caches"]["other"] = dict(written["caches"]["cache"])
    written["nodes"][-1]["attributes"]["cache"] = "other"


def has_other_heads(written):
    written["nodes"][-1]["attributes"]["num_kv_heads"] = 3


def is_written_twice(written):
    first = next(node for node in written["nodes"] if node["kind"] == "attention")
    second = {**first, "name": "again", "outputs": {"output": "again"}}
    written["nodes"].append(second)
    written["values"]["again"] = written["values"]["stored"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (reads_first, ["output", "no node before writes the cache 'cache'"]),
        (has_no_writer, ["output", "no node before writes the cache 'other'"]),
        (has_other_heads, ["output", "num_kv_heads of the cache", "3"]),
        (is_written_twice, ["again", "cache"]),
    ],
)
def test_a_wrong_program_is_refused(executor, change, words):
    program, _ = whole()
    reason = executor.supports_program(changed(program, change))
    assert reason is not None
    assert all(word in reason for word in words), reason


def test_a_program_is_what_it_was_when_it_is_read_again():
    program, _ = whole()
    assert Program.from_json(program.to_json()) == program


def test_a_step_reads_the_cache_for_each_node():
    program, _ = whole()
    alone, _ = node_program("attention", KINDS["attention"].samples[5])
    token = program.caches["cache"].bytes_per_token
    assert StepReads.of(program).cache_per_token == 2 * token
    assert StepReads.of(alone).cache_per_token == alone.caches["cache"].bytes_per_token


def with_products(is_shared):
    """Return a program of attention between products, whose cache another node reads or not."""
    builder = Builder(LIMITS)

    def matrix(name, rows, columns):
        return builder.tensor(name, Tensor("f32", (rows, columns), {"attached": True}))

    def product(x, name, rows, columns):
        return builder.add("linear", {"x": x}, {"weight": matrix(f"{name}.weight", rows, columns)},
                           output=name)  # fmt: skip

    sample, program = (
        SAMPLES["grouped heads"],
        node_program("attention", KINDS["attention"].samples[1])[0],
    )
    attributes = {**sample.attributes, "cache": builder.cache("cache", program.caches["cache"])}
    heads = attributes["num_heads"] * attributes["head_size"]
    table = matrix("table", 7, 32)
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    qkv = product(x, "qkv", heads + 2 * attributes["num_kv_heads"] * attributes["head_size"], 32)
    y = builder.add("attention", {"qkv": qkv}, None, attributes, output="attended")
    y = product(y, "out", 32, heads)
    if is_shared:
        q = product(y, "q", heads, 32)
        y = builder.add("shared_attention", {"q": q}, None, attributes, output="shared")
        y = product(y, "shared.out", 32, heads)
    return builder.program([product(y, "logits", 7, 32)])


@pytest.mark.parametrize("is_shared", [False, True])
def test_ranks_compute_attention_whole_whose_cache_is_shared(is_shared):
    part = shard(with_products(is_shared), 1, 3)
    (cache,) = part.caches.values()
    assert cache.num_kv_heads == (3 if is_shared else 1)
    assert [node.kind for node in part.nodes].count("allreduce") == (not is_shared)
    assert part.nodes[-1].kind == "allgather"


def test_a_reader_alone_is_no_program():
    program, _ = whole()
    builder = Builder(program.limits)
    builder.cache("cache", program.caches["cache"])
    for name, tensor in program.tensors.items():
        builder.tensor(name, tensor)
    builder.add_nodes([node for node in program.nodes if node.name != "stored"])
    with pytest.raises(ProgramError, match="no node before writes the cache 'cache'"):
        builder.program(["output"])


def test_the_reference_counts_a_cache_once():
    program, _ = whole()
    bytes_of = reference.program_memory(program.to_json())["caches"]
    assert bytes_of == LIMITS.num_pages * LIMITS.page_size * program.caches["cache"].bytes_per_token
