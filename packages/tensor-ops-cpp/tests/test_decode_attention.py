"""Attention to sequences of several ranges of positions: close to float64, the same bits always."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from decode_llama import kept

import tensor_ops_cpp

CPU_LEVELS = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
WORDS, LENGTH, REQUESTS = 61, 300, 3
DTYPES, PAGES, WINDOWS = ["float32", "float16", "int8"], [16, 48, 7, None], [0, 150]
# Heads in one pass and in several; head sizes of whole vectors and not.
SIZES = [(9, 3, 64), (5, 1, 40), (2, 2, 80)]
CASES = [
    (*sizes, dtype, page, window)
    for sizes, (dtype, page, window) in itertools.product(
        SIZES, itertools.product(DTYPES, PAGES, WINDOWS)
    )
    if sizes == SIZES[0] or page == 16
]
TOKENS = np.random.default_rng(5).integers(0, WORDS, LENGTH)


def attention(heads, kv_heads, size, dtype, page, window):
    """The program of one node without a rotation; a page of None is a contiguous cache."""
    columns = (heads + 2 * kv_heads) * size
    values = {"qkv": columns, "out": heads * size}
    attributes = {
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_size": size,
        "scale": size**-0.5,
        "window": window,
        "soft_cap": 0.0,
        "rotation": "halves",
        "eps": 0.0,
        "cache": "cache",
    }
    cache = {"num_kv_heads": kv_heads, "head_size": size, "dtype": dtype, "paged": page is not None}
    nodes = [
        ("embed", {"tokens": "tokens"}, {"weight": ["table"]}, {"output": "qkv"}, {}),
        ("attention", {"qkv": "qkv"}, {}, {"output": "out"}, attributes),
    ]
    keys = ("kind", "inputs", "weights", "outputs", "attributes")
    return {
        "format": "tensor-ops program",
        "version": 1,
        "limits": {
            "max_requests": REQUESTS,
            "max_tokens": 90,
            "max_selected": 1,
            "max_seq_length": LENGTH,
            "page_size": page or 16,
            "num_pages": REQUESTS * -(-LENGTH // (page or 16)),
        },
        "tensors": {
            "table": {"type": "f32", "shape": [WORDS, columns], "source": {"attached": True}}
        },
        "caches": {"cache": cache},
        "values": {
            name: {"rows": "tokens", "columns": each, "dtype": "float32"}
            for name, each in values.items()
        },
        "nodes": [
            {"name": f"node{i}", **dict(zip(keys, node, strict=True))}
            for i, node in enumerate(nodes)
        ],
        "outputs": ["out"],
    }


def table_of(heads, kv_heads, size):
    draw = np.random.default_rng(6)
    return draw.standard_normal((WORDS, (heads + 2 * kv_heads) * size), dtype=np.float32)


def attended(program, table, num_workers, chunk, slot=0, others=(), output="out"):
    """The outputs of the sequence, in chunks, beside single tokens in other slots."""
    tensors = {"table": table}
    executable = tensor_ops_cpp.compile_program(
        json.dumps(program), tensors, num_workers=num_workers
    )
    arrays, parts = executable.arrays, []
    table = arrays["page_table"]
    table[:] = np.random.default_rng(7).permutation(table.size).reshape(table.shape)
    for first in range(0, LENGTH, chunk):
        tokens = TOKENS[first : first + chunk]
        slots = [*others, *[slot] * len(tokens)]
        count = len(slots)
        arrays["tokens"][:count] = [*[1] * len(others), *tokens]
        arrays["slots"][:count] = slots
        positions = np.arange(first, first + len(tokens))
        arrays["positions"][:count] = [*[first // chunk] * len(others), *positions]
        executable.run(count, 0)
        parts.append(arrays[output][len(others) : count].copy())
    executable.close()
    return np.concatenate(parts)


def expected(heads, kv_heads, size, dtype, window, table):
    q, k, v = np.split(table[TOKENS].reshape(LENGTH, -1, size), [heads, heads + kv_heads], axis=1)
    k, v = (
        kept(each, dtype).astype(np.float64).repeat(heads // kv_heads, axis=1) for each in (k, v)
    )
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k) * size**-0.5
    distance = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    scores[:, (distance < 0) | ((distance >= window) if window else False)] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), v).reshape(LENGTH, -1)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(3, "case")
def test_several_ranges(case, request):
    heads, kv_heads, size, dtype, _, window = case
    program, table = attention(*case), table_of(heads, kv_heads, size)
    bits = attended(program, table, 1, 1)
    right = expected(heads, kv_heads, size, dtype, window, table)
    # Beside int8, queries and the weights of positions are rounded to int16.
    np.testing.assert_allclose(bits, right, rtol=0, atol=5e-4 if dtype == "int8" else 2e-6)
    ways = ((2, 1, ()), (3, 1, (0,)), (2, 90, ()), (2, 2, (2,)), (7, 4, ()))
    if not request.config.getoption("--nightly"):
        ways = [ways[(CASES.index(case) + i) % len(ways)] for i in (0, 2)]  # in turn
    for workers, chunk, others in ways:
        slot = 1 if others else 0
        given = attended(program, table, workers, chunk, slot, others)
        np.testing.assert_array_equal(given.view(np.uint32), bits.view(np.uint32))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.sampled(2, "sizes", "dtype", "window")
def test_pages_of_any_size_keep_the_bits(sizes, dtype, window, request):
    table = table_of(*sizes)
    bits = attended(attention(*sizes, dtype, 16, window), table, 2, 90)
    pages = (1, 2, 3, 5, 7, 8, 17, 24, 40, 64, 144, 304, 128, LENGTH, None)
    if not request.config.getoption("--nightly"):
        pages = pages[DTYPES.index(dtype) :: len(DTYPES)]  # those of all dtypes are all
    for page in pages:
        program = attention(*sizes, dtype, page, window)
        for chunk, slot, others in ((90, 0, ()), (1, 1, (0, 2))):
            given = attended(program, table, 2, chunk, slot, others)
            np.testing.assert_array_equal(given.view(np.uint32), bits.view(np.uint32), f"{page=}")


@pytest.mark.parametrize("page", [16, 48, 144, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pages_that_are_copied_keep_the_bits(dtype, page):
    table = table_of(*SIZES[0])
    program = json.dumps(attention(*SIZES[0], dtype, page, 0))
    executable = tensor_ops_cpp.compile_program(program, {"table": table}, num_workers=2)
    arrays = executable.arrays
    pages = np.random.default_rng(8).permutation(arrays["page_table"].size)
    arrays["page_table"][:] = pages.reshape(arrays["page_table"].shape)
    own, other = arrays["page_table"][:2]

    def run(slot, first, count):
        arrays["tokens"][:count] = TOKENS[first : first + count]
        arrays["slots"][:count] = slot
        arrays["positions"][:count] = np.arange(first, first + count)
        executable.run(count, 0)
        return arrays["out"][:count].copy()

    run(0, 0, 90)
    run(0, 90, 80)
    rows = executable.read_pages(own)
    executable.write_pages(other, rows)
    np.testing.assert_array_equal(executable.read_pages(other), rows)
    bits = [run(slot, 170, 1).view(np.uint32) for slot in (0, 1)]
    np.testing.assert_array_equal(*bits)
    executable.close()


@pytest.mark.parametrize("page", [16, 7])
def test_caches_of_several_nodes_keep_apart(page):
    """Their pages take turns in memory; caches that are not paged come before those that are."""
    sizes, table = SIZES[0], table_of(*SIZES[0])
    kinds = {
        "a": ("float32", page),
        "b": ("int8", page),
        "c": ("float16", None),
        "d": ("int8", None),
    }
    single = {name: attention(*sizes, *kind, 0) for name, kind in kinds.items()}
    program = attention(*sizes, "float16", page, 0)
    embed, node = program["nodes"]
    value, cache = program["values"].pop("out"), program["caches"].pop("cache")
    for name, (dtype, paged) in kinds.items():
        program["values"][name] = value
        program["caches"][name] = cache | {"dtype": dtype, "paged": paged is not None}
    program["nodes"] = [embed] + [
        {
            **node,
            "name": name,
            "outputs": {"output": name},
            "attributes": node["attributes"] | {"cache": name},
        }
        for name in kinds
    ]
    program["outputs"] = list(kinds)
    for name in kinds:
        bits = attended(single[name], table, 1, 90)
        given = attended(program, table, 2, 80, 1, (0, 2), output=name)
        np.testing.assert_array_equal(given.view(np.uint32), bits.view(np.uint32), name)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_few_tokens_make_little_of_a_large_cache_resident():
    """However many heads there are, and however large a page of the system is."""

    def resident():
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1])

    program = attention(16, 16, 64, "float32", 16, 0)
    program["limits"]["num_pages"] = 2048
    program["limits"]["max_seq_length"] = 16 * 2048
    before = resident()
    executable = tensor_ops_cpp.compile_program(
        json.dumps(program), {"table": table_of(16, 16, 64)}, num_workers=2
    )
    assert executable.memory["caches"] == 2**28
    executable.arrays["page_table"][0] = np.arange(2048)
    executable.arrays["positions"][:60] = np.arange(60)
    executable.run(60, 0)
    assert resident() - before < 2**24
    executable.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_later_tokens_leave_no_trace(value, dtype):
    """Tokens of a prompt are computed together, but none sees what comes after it."""
    table = table_of(9, 3, 64)
    program = attention(9, 3, 64, dtype, 16, 0)
    bits = attended(program, table, 2, 90)
    alike = np.flatnonzero(TOKENS[-1] == TOKENS)[0]
    table[TOKENS[-1], 9 * 64 :] = value
    given = attended(program, table, 2, 90)
    np.testing.assert_array_equal(given[:alike].view(np.uint32), bits[:alike].view(np.uint32))
    assert np.isnan(given[alike:]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_prompts_side_by_side_keep_the_bits(dtype):
    """In a step that has parts of the prompts of all requests, in turn and one after another."""
    table = table_of(9, 3, 64)
    program = attention(9, 3, 64, dtype, 16, 0)
    bits = attended(program, table, 1, 90)[:60]
    for counts in ((30, 30, 30), (1, 29, 60)):
        executable = tensor_ops_cpp.compile_program(
            json.dumps(program), {"table": table}, num_workers=2
        )
        arrays = executable.arrays
        arrays["page_table"][:] = np.arange(arrays["page_table"].size).reshape(REQUESTS, -1)
        done, given = [0] * REQUESTS, [list[np.ndarray]() for _ in range(REQUESTS)]
        while any(each < 60 for each in done):
            parts = [
                (slot, min(count, 60 - done[slot]))
                for slot, count in enumerate(counts)
                if done[slot] < 60
            ]
            slots = np.repeat(*np.transpose(parts))
            positions = np.concatenate([np.arange(n) + done[slot] for slot, n in parts])
            count = len(slots)
            arrays["slots"][:count], arrays["positions"][:count] = slots, positions
            arrays["tokens"][:count] = TOKENS[positions]
            executable.run(count, 0)
            for slot, n in parts:
                given[slot].append(arrays["out"][:count][slots == slot].copy())
                done[slot] += n
        executable.close()
        for each in given:
            found = np.concatenate(each)
            np.testing.assert_array_equal(found.view(np.uint32), bits.view(np.uint32))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e8])
def test_what_int8_cannot_keep_becomes_nan(value):
    """A group of 32 elements that has it is lost, the group beside it is not."""
    table = table_of(1, 1, 64)
    table[TOKENS[0], 2 * 64 + 3] = value
    given = attended(attention(1, 1, 64, "int8", 16, 0), table, 1, 1)[0]
    assert np.isnan(given[:32]).all()
    assert np.isfinite(given[32:]).all()


def test_what_is_too_small_for_a_scale_is_zero_in_int8():
    table = table_of(1, 1, 64) * np.float32(1e-9)
    given = attended(attention(1, 1, 64, "int8", 16, 0), table, 1, 1)
    np.testing.assert_array_equal(given, 0)


# All tests run on the level in use; the sample of them has every dtype, size, page and window.
@pytest.mark.parametrize("level", [x for x in CPU_LEVELS if x != tensor_ops_cpp.simd_level])
def test_other_levels_keep_every_promise(level, request):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [str(Path(__file__)), "-k", "not levels"]
    command += [] if request.config.getoption("--nightly") else ["--every=5"]
    environment = {**os.environ, "TENSOR_OPS_CPP_ISA": level}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
