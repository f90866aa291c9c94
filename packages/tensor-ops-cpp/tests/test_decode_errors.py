"""Programs, tensors, options and steps that are wrong: an error that says what, never a crash."""

import copy
import json

import numpy as np
import pytest
from decode_llama import Llama

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
        ("", "Expecting value: byte 0"),
        ("[1, 2", "Expecting ',' delimiter: byte 5"),
        ('{"a": 1, "a": 2}', "'a' given twice: byte 12"),
        ("{} {}", "Extra data: byte 3"),
        ("[" * 100_000, "nested too deeply"),
        ('"\xff', "Unterminated string starting at: byte 0"),
        ('"\\ud800"', "half of a surrogate pair: byte 7"),
        ('"\\x"', r"Invalid \escape: byte 1"),
        ("[01]", "Expecting ',' delimiter: byte 2"),
        ("1e999", "number out of range: byte 0"),
        ("nul", "Expecting value: byte 0"),
        ("[1,]", "Expecting value: byte 3"),
        ("3", "must be an object, got a number"),
    ],
)
def test_text_that_is_no_json_names_the_byte(text, expected):
    assert expected in refusal(text)


def test_text_that_is_not_utf8_names_the_byte():
    for bad in (b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"'):
        with pytest.raises(ValueError, match="not UTF-8 at byte 1"):
            tensor_ops_cpp.compile_program(bad, {})


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
