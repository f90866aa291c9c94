"""Programs, tensors, options and steps that are wrong: an error that says what, never a crash."""

import copy
import json

import numpy as np
import pytest
from decode_llama import LIMITS, LONGEST, WIDTH, WORDS, Llama, run_step

import tensor_ops_cpp

LLAMA = Llama()
TEXT = json.dumps(LLAMA.program)


def refusal(text, tensors=LLAMA.tensors, **given):
    with pytest.raises(ValueError, match=r"[a-z]") as caught:
        tensor_ops_cpp.compile_program(text, tensors, **given)
    return str(caught.value)


def changed(path, value):
    program = copy.deepcopy(LLAMA.program)
    *parents, last = path
    part = program
    for key in parents:
        part = part[key]
    part[last] = value
    return json.dumps(program)


def test_supports_program_says_what_compile_program_would():
    assert tensor_ops_cpp.supports_program(TEXT) is None
    text = changed(["nodes", 1, "kind"], "convolution")
    assert tensor_ops_cpp.supports_program(text) == refusal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected a value at byte 0"),
        ("[1, 2", "expected ']' at byte 5"),
        ('{"a": 1, "a": 2}', "'a' given twice at byte 12"),
        ("{} {}", "text after the value at byte 3"),
        ("[" * 100_000, "nested too deeply"),
        ('"\xff', "a string without an end"),
        ('"\\ud800"', "surrogate"),
        ('"\\x"', "unknown escape"),
        ("[01]", "expected ']'"),
        ("1e999", "number out of range"),
        ("nul", "unknown word"),
        ("[1,]", "expected a value"),
        ("3", "must be an object, got a number"),
    ],
)
def test_text_that_is_no_json_names_the_byte(text, expected):
    assert expected in refusal(text)


def test_text_that_is_not_utf8_names_the_byte():
    for bad in (b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"'):
        with pytest.raises(ValueError, match="not UTF-8 at byte 1"):
            tensor_ops_cpp.compile_program(bad, {})


NODE = "node 'node.qkv0' (rms_norm_linear)"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["version"], 2, "version must be 1, got 2"),
        (["format"], "x", "format must be 'tensor-ops program'"),
        (["extra"], 1, "program: unknown key 'extra'"),
        (["limits", "max_tokens"], 0, "max_tokens must be an integer from 1"),
        (["limits", "max_tokens"], 2.5, "max_tokens must be an integer from 1"),
        (["limits", "max_tokens"], 2**40, "max_tokens must be an integer from 1"),
        (["limits", "max_seq_length"], 65, "a row for each of the 65 positions, got 64 x 5"),
        (["tensors", "q0", "type"], "q9_9", "tensor 'q0': type must be one of"),
        (["tensors", "q0", "shape"], [60], "weight 'q0' must be a matrix, got a vector"),
        (["tensors", "q0", "shape"], [60, 95], "columns of weight 'q0' must be 96 (K), got 95"),
        (["tensors", "q0", "shape"], [2**31 - 1] * 2, "'q0': its size in bytes is more than"),
        (["tensors", "q0", "shape"], [1, 2, 3], "one or two dimensions, got 3"),
        (["caches", "cache0", "dtype"], "int3", "dtype must be one of float32, float16, int8"),
        (["caches", "cache0", "paged"], 1, "paged must be a boolean, got a number"),
        (["caches", "cache0", "head_size"], 12, "head_size of the cache must be 10, got 12"),
        (["values", "qkv0", "columns"], 99, "columns of output 'qkv0' must be 100 (N), got 99"),
        (["values", "qkv0", "rows"], "selected", "must have the rows 'tokens'"),
        (["values", "qkv0", "dtype"], "int32", "must be float32"),
        (["values", "more"], LLAMA.program["values"]["x0"], "value 'more' is written by no node"),
        (
            ["nodes", 1, "kind"],
            "nothing",
            "no such kind as 'nothing'; the kinds are add, allreduce",
        ),
        (["nodes", 1, "name"], "node.x0", "another node has the same name"),
        (["nodes", 1, "inputs"], {}, f"{NODE}: inputs: the key 'x' is missing"),
        (["nodes", 1, "inputs", "x"], "x9", f"{NODE}: x names the value 'x9', which is missing"),
        (["nodes", 1, "inputs", "x"], "x1", f"{NODE}: x is 'x1', which no node before writes"),
        (["nodes", 1, "inputs", "y"], "x0", f"{NODE}: inputs: unknown key 'y'; expected x"),
        (["nodes", 1, "weights", "norm"], ["none"], f"{NODE}: norm names the tensor 'none'"),
        (["nodes", 1, "weights", "norm"], [], f"{NODE}: norm must name at least one tensor"),
        (["nodes", 1, "weights", "norm"], ["norm", "norm"], "norm must be one tensor, got 2"),
        (["nodes", 1, "weights", "bias"], ["q_bias0"], "bias must have for each matrix a vector"),
        (["nodes", 1, "attributes"], {}, f"{NODE}: the key 'eps' is missing"),
        (["nodes", 1, "attributes", "eps"], -1, f"{NODE}: eps must be at least 0, got -1"),
        (["nodes", 1, "attributes", "eps"], "0", f"{NODE}: eps must be a number, got a string"),
        (["nodes", 1, "outputs", "output"], "x0", f"{NODE}: its output 'x0' is written twice"),
        (["nodes", 2, "attributes", "num_heads"], 5, "num_heads must be a multiple of"),
        (
            ["nodes", 2, "attributes", "rotation"],
            "up",
            "rotation must be one of halves, interleaved",
        ),
        (["nodes", 2, "attributes", "cache"], "cache1", "has the same cache"),
        (["nodes", 2, "weights", "sin"], None, "sin must be an array, got null"),
        (["outputs"], ["logits", "logits"], "'logits' is named twice"),
        (["outputs"], ["tokens"], "'tokens' is an input"),
        (["outputs"], ["nothing"], "names the value 'nothing', which is missing"),
    ],
)
def test_a_wrong_program_is_an_error_that_names_the_place(path, value, expected):
    assert expected in refusal(changed(path, value))


def parts_of(value, path=()):
    """The paths of all parts of a JSON value."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from parts_of(value[key], (*path, key))


def test_no_change_of_one_part_crashes():
    """Each part of a program replaced by other values: accepted, or refused with a ValueError."""
    program, draw = LLAMA.program, np.random.default_rng(3)
    values = [None, True, 0, -1, 1, 3, 2**31 - 1, 2**63, 1e300, 0.5, "", "x0", "cos", [], {}]
    values += [["cos"], ["q0", "q0"], {"x": "x0"}, [1, 1], [2**31 - 1, 2**31 - 1]]
    refused = 0
    for path in list(parts_of(program))[1:]:
        for i in draw.choice(len(values), 4, replace=False):
            reason = tensor_ops_cpp.supports_program(changed(path, values[i]))
            refused += reason is not None
    assert refused > 1000


def test_no_damaged_text_crashes():
    draw, data = np.random.default_rng(4), np.frombuffer(TEXT.encode(), np.uint8)
    for _ in range(2000):
        damaged = data.copy()
        damaged[draw.integers(len(data), size=3)] = draw.integers(0, 256, 3)
        damaged = damaged[: draw.integers(1, 3 * len(data))]
        tensor_ops_cpp.supports_program(damaged.tobytes())


def test_tensors_must_be_given_contiguous_and_of_the_right_size():
    def with_q0(tensor):
        return LLAMA.tensors | {"q0": tensor}

    missing = {name: each for name, each in LLAMA.tensors.items() if name != "q0"}
    assert "tensor 'q0' is not given" in refusal(TEXT, missing)
    q0 = LLAMA.tensors["q0"]
    assert "must have 23040 bytes" in refusal(TEXT, with_q0(q0[:-1].view(np.uint8)))
    assert "'q0' is not C-contiguous" in refusal(TEXT, with_q0(np.asfortranarray(q0)))
    for wrong, given in [
        (q0[:30].astype(np.float64), "float64 of shape (30, 96)"),
        (q0.reshape(96, 60), "float32 of shape (96, 60)"),
        (q0.astype(">f4"), ">f4 of shape (60, 96)"),
        (q0.view(np.int32), "int32 of shape (60, 96)"),
        (q0.view(bool), "bool of shape (60, 384)"),
    ]:
        expected = f"'q0' must be f32 of shape (60, 96) or its bytes as uint8, got {given}"
        assert expected in refusal(TEXT, with_q0(wrong))
    with pytest.raises(TypeError, match="'q0' is not an array in host memory"):
        tensor_ops_cpp.compile_program(TEXT, with_q0("text"))


def test_options_and_workers_must_be_valid():
    assert "unknown option 'speed'; valid: activations" in refusal(TEXT, options={"speed": 1})
    message = refusal(TEXT, options={"activations": "int4"})
    assert "'int8x2', 'int8', 'bfloat16' or 'float32', got 'int4'" in message
    assert "num_workers must be from 1 to" in refusal(TEXT, num_workers=0)
    with pytest.raises(TypeError, match="num_workers must be an int or None, got float"):
        LLAMA.compile(num_workers=1.0)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("num_pages", r"weights \d+, caches \d{13}, "), ("max_requests", r"weights.*arrays \d{14}\)")],
)
def test_more_memory_than_there_is_says_how_much_for_what(limit, expected):
    text = changed(["limits", limit], 2**31 - 1)
    with pytest.raises(MemoryError, match=rf"needs \d+ bytes \({expected}"):
        tensor_ops_cpp.compile_program(text, LLAMA.tensors)


def test_arguments_of_wrong_types_are_refused():
    for arguments, expected in [
        ((None, {}), "program must be a str of JSON, got NoneType"),
        ((TEXT, [LLAMA.tensors]), "tensors must be a mapping of names, got list"),
    ]:
        with pytest.raises(TypeError, match=expected):
            tensor_ops_cpp.compile_program(*arguments)
    with pytest.raises(TypeError, match="options must be a mapping or None, got str"):
        LLAMA.compile(options="int8")
    with pytest.raises(TypeError, match="progress must be callable, got int"):
        LLAMA.compile(progress=1)
    assert "not UTF-8 at byte 1" in refusal('"\ud800"')


def test_only_the_tokens_of_a_step_are_looked_up():
    """An argmax may be beyond the last row of a table."""
    program = copy.deepcopy(LLAMA.program)
    program["values"]["again"] = {"rows": "selected", "columns": WIDTH, "dtype": "float32"}
    again = copy.deepcopy(program["nodes"][0])
    again |= {"name": "again", "inputs": {"tokens": "argmax"}, "outputs": {"output": "again"}}
    program["nodes"].append(again)
    expected = "node 'again' (embed): tokens must be the value 'tokens', got 'argmax'"
    assert expected in refusal(json.dumps(program))


def test_names_may_have_any_character():
    text = TEXT.replace('"logits"', '"lo\\u0000g\\ud83d\\ude00"')
    made = tensor_ops_cpp.compile_program(text, LLAMA.tensors)
    made.run(1, 1)
    assert "lo\0g\N{GRINNING FACE}" in made.arrays


@pytest.fixture(scope="module")
def executable():
    made = LLAMA.compile(num_workers=1)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "index", "value", "expected"),
    [
        ("tokens", 1, WORDS, f"each token must be from 0 to {WORDS - 1}, got {WORDS}"),
        ("tokens", 0, -1, "each token must be from 0"),
        ("positions", 2, LONGEST, "each position must be from 0"),
        ("positions", 1, 5, "positions of slot 2 must ascend one by one, got 5 after 3"),
        ("slots", 0, LIMITS["max_requests"], "each slot must be from 0 to 8, got 9"),
        ("selected", 1, 0, "indices in selected must ascend"),
        ("selected", 2, 3, "each index in selected must be from 0 to 2, got 3"),
        ("page_table", (2, 1), LIMITS["num_pages"], r"page_table\[2, 1\] must be from 0 to 159"),
        ("page_table", (2, 0), -1, r"page_table\[2, 0\] must be from 0 to 159, got -1"),
        ("temperature", 2, np.nan, r"temperature\[2\] must be finite and at least 0, got nan"),
        ("top_p", 2, 1.5, r"top_p\[2\] must be from 0 to 1, got 1.5"),
        ("min_p", 2, -1, r"min_p\[2\] must be from 0 to 1, got -1"),
        ("top_k", 2, -1, r"top_k\[2\] must be at least 0, got -1"),
        ("num_edits", 2, -1, r"num_edits\[2\] must be from 0 to 1088, got -1"),
        ("num_edits", 2, 1, r"edit_penalties\[2, 0\] must be finite and above 0, got 0"),
    ],
)
def test_a_wrong_step_is_refused_before_anything_is_written(
    executable, name, index, value, expected
):
    arrays = executable.arrays
    run_step(executable, [(2, 3, [4, 5, 6])])
    before, kept = arrays["logits"].copy(), arrays[name][index]
    arrays["logits"][:] = 7
    arrays[name][index] = value
    with pytest.raises(ValueError, match=expected):
        executable.run(3, 3)
    assert np.all(arrays["logits"] == 7)
    arrays[name][index] = kept
    executable.run(3, 3)
    np.testing.assert_array_equal(arrays["logits"][:3], before[:3])


@pytest.mark.parametrize(("tokens", "selected"), [(0, 0), (41, 1), (-1, 0), (3, 4), (3, -1)])
def test_numbers_of_tokens_out_of_range_are_refused(executable, tokens, selected):
    with pytest.raises(ValueError, match=r"num_(tokens|selected) must be"):
        executable.run(tokens, selected)
