"""Exported models with any part changed, and calls of the C interface on those that still open.

Whatever is in the folder and in the arguments, a call gives a status that the header names, and a
message unless it has done what it was asked for.
"""

import ctypes
import json
import shutil
import tempfile
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np
from changes import NUMBERS, change
from choices import Choices

from c_interface import MEMORY_ERROR, OK, RUNTIME_ERROR, VALUE_ERROR, Error, Interface
from tensor_ops_decode.kernel.export import MODEL, PROGRAM, WEIGHTS, ModelFacts, export_model
from tensor_ops_decode.program import Cache, Limits, Tensor
from tensor_ops_decode.program.builder import Builder

__all__ = ["RUNS", "try_input"]

RUNS = 400  # of test_found.py
SEEDS = [bytes([way, 7, 40, 90, 3, 11, *range(60)]) for way in range(6)]
MOST_COUNT = 64  # numbers in an argument
FUNCTIONS = (
    "open", "close", "facts", "open_sequence", "close_sequence", "set_sampling", "append",
    "truncate", "run_sequences", "logits", "generate", "step_array", "run_step", "run_steps",
)  # fmt: skip
ARRAYS = ("tokens", "positions", "slots", "selected", "page_table", "top_k", "num_edits", "next")


class Table(ctypes.Structure):
    _fields_ = (("size", c_size_t), *((name, c_void_p) for name in FUNCTIONS))


class Sampling(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("temperature", c_double),
        ("top_p", c_double),
        ("min_p", c_double),
        ("seed", ctypes.c_uint64),
        ("top_k", c_int32),
    )


class Generation(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("sequences", POINTER(c_int64)),
        ("sequence_count", c_int32),
        ("max_tokens", c_int32),
        ("end_tokens", POINTER(c_int32)),
        ("end_token_count", c_int32),
        ("tokens", POINTER(c_int32)),
        ("token_counts", POINTER(c_int32)),
    )


class StepArray(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("data", c_void_p),
        ("type", c_int32),
        ("dims", c_int32),
        ("shape", c_int64 * 2),
    )


class Steps(ctypes.Structure):
    _fields_ = (
        ("size", c_size_t),
        ("output", c_char_p),
        ("num_tokens", c_int32),
        ("num_steps", c_int32),
        ("end_tokens", c_void_p),
        ("end_token_counts", c_void_p),
        ("max_seconds", c_double),
        ("chosen", POINTER(c_int32)),
        ("steps_done", c_int32),
    )


INTERFACE = Interface("cpp")
TABLE = Table.from_address(INTERFACE.table.decode)


def _call(name, *arguments):
    """Call a function of the table; fail unless its status is one of the header's."""
    error = Error()
    function = ctypes.CFUNCTYPE(c_int32)(getattr(TABLE, name))
    status = function(*arguments, byref(error))
    assert status in (OK, VALUE_ERROR, MEMORY_ERROR, RUNTIME_ERROR), (name, status)
    assert status == OK or error.text, name
    return status


def _export(folder):
    """Export a small model that has what models have."""
    builder = Builder(Limits(3, 8, 3, 40, 4, 12))
    draw, arrays = np.random.default_rng(0), {}

    def weight(name, *shape):
        arrays[name] = draw.standard_normal(shape, dtype=np.float32)
        return builder.tensor(name, Tensor("f32", shape, {"attached": True}))

    builder.add("embed", {"tokens": "tokens"}, {"weight": weight("table", 24, 16)}, output="x")
    norm = {"weight": weight("norm", 16)}
    builder.add("rms_norm", {"x": "x"}, norm, {"eps": 1e-5}, output="normed")
    builder.add("linear", {"x": "normed"}, {"weight": weight("qkv", 32, 16)}, output="qkv")
    cache = builder.cache("cache", Cache(1, 8, "float16", True))
    attention = {"num_heads": 2, "num_kv_heads": 1, "head_size": 8, "scale": 0.4, "eps": 1e-6}
    attention |= {"window": 0, "soft_cap": 0.0, "rotation": "halves", "cache": cache}
    tables = {"cos": weight("cos", 40, 4), "sin": weight("sin", 40, 4)}
    builder.add("attention", {"qkv": "qkv"}, tables, attention, output="heads")
    builder.add("linear", {"x": "heads"}, {"weight": weight("out", 16, 16)}, output="y")
    builder.add("select", {"x": "y"}, output="last")
    builder.add("linear", {"x": "last"}, {"weight": weight("head", 24, 16)}, output="logits")
    builder.add("sample", {"x": "logits"}, output="next")
    facts = ModelFacts("small", "logits", "next", 0, frozenset([3]), "float32")
    export_model(folder, builder.program(["logits", "next"]), arrays, facts)


PLACE = tempfile.TemporaryDirectory()
WHOLE, CHANGED = Path(PLACE.name, "whole"), Path(PLACE.name, "changed")
_export(WHOLE)
shutil.copytree(WHOLE, CHANGED)
FILES = {name: (WHOLE / name).read_bytes() for name in (MODEL, PROGRAM, WEIGHTS)}


def try_input(data):
    choices = Choices(data)
    for name, content in _changed_files(choices).items():
        (CHANGED / name).write_bytes(content)
    model = c_void_p()
    if _call("open", str(CHANGED).encode(), None, byref(model)) != OK:
        assert not model.value
        return
    try:
        calls = _sequence_calls if choices.below(3) else _step_calls
        calls(model, choices)
    finally:
        ctypes.CFUNCTYPE(None, c_void_p)(TABLE.close)(model)


def _changed_files(choices):
    files, way = dict(FILES), choices.below(6)
    if way == 0:
        return files
    name = choices.pick(list(files)) if way > 3 else list(files)[way - 1]
    content = files[name]
    if way <= 3:
        begin = 8 if name == WEIGHTS else 0
        length = int.from_bytes(content[:8], "little") if name == WEIGHTS else len(content)
        value = json.loads(content[begin : begin + length])
        for _ in range(1 + choices.below(2)):
            change(value, choices, ("file", "shape", "version", "sha256"))
        text = json.dumps(value).encode()
        if name == WEIGHTS:
            text = text.ljust(length)
            content = len(text).to_bytes(8, "little") + text + content[8 + length :]
        else:
            content = text
    elif way == 4:
        changed = bytearray(content)
        for _ in range(1 + choices.below(4)):
            changed[choices.below(len(changed))] = choices.byte()
        content = bytes(changed)
    else:
        content = content[: choices.below(len(content))] + b"\0" * choices.below(2)
    return files | {name: content}


def _number(choices, bits):
    """Return an integer that ctypes passes as one of so many bits: mostly a sensible one."""
    if choices.rarely():
        number = int(choices.pick(NUMBERS))
        return (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return choices.below(24)


def _numbers(choices, type_, bits):
    values = [_number(choices, bits) for _ in range(choices.below(12))]
    return (type_ * MOST_COUNT)(*values), len(values)


def _sequence_calls(model, choices):
    numbers = (c_int64 * 3)()  # of sequences, of which the first is empty
    for index in range(3):
        address = ctypes.addressof(numbers) + 8 * index
        _call("open_sequence", model, c_void_p(address))
        _call("append", model, c_int64(numbers[index]), (c_int32 * 2)(1, index), c_int64(index))
    for _ in range(10):
        way = choices.below(8)
        sequence = c_int64(choices.pick([*numbers, _number(choices, 64)]))
        if way == 0:
            tokens, count = _numbers(choices, c_int32, 32)
            _call("append", model, sequence, tokens, c_int64(count))
        elif way == 1:
            _call("truncate", model, sequence, c_int64(_number(choices, 64)))
        elif way == 2:
            _call("run_sequences", model, numbers, c_int32(choices.below(4)))
        elif way == 3:
            count = choices.pick([24, 24, 24, 0, MOST_COUNT])
            logits = (ctypes.c_float * max(count, 1))()
            _call("logits", model, sequence, logits, c_int64(count))
        elif way == 4:
            _call("close_sequence", model, sequence)
        elif way == 5:
            values = [float(choices.pick([0.0, 0.5, 1.0, *NUMBERS])) for _ in range(3)]
            top_k = _number(choices, 32)
            sampling = Sampling(ctypes.sizeof(Sampling), *values, choices.byte(), top_k)
            _call("set_sampling", model, sequence, byref(sampling))
        else:
            _generate(model, numbers, choices)


def _generate(model, numbers, choices):
    most = choices.pick([1, 5, 45, 0, *range(2, 12)])
    count = choices.pick([1, 2, 3, 0])
    ends, end_count = _numbers(choices, c_int32, 32)
    tokens, counts = (c_int32 * max(3 * most, 1))(*[-7] * 3 * most), (c_int32 * 3)()
    sequences = (c_int64 * 3)(*list(numbers)[:: choices.pick([-1, 1])])
    generation = Generation(
        ctypes.sizeof(Generation),
        sequences,
        count,
        most,
        ends,
        choices.pick([-1, 0, end_count]),
        tokens,
        counts,
    )
    status = _call("generate", model, byref(generation))
    for index in range(count):
        written = tokens[index * most : (index + 1) * most]
        number = counts[index] if status == OK else 0
        assert (0 < number <= most) == (status == OK)
        assert -7 not in written[:number]
        assert set(written[number:]) <= {-7}


def _step_calls(model, choices):
    for _ in range(12):
        way = choices.below(4)
        if way == 0:
            _call("run_step", model, c_int32(_number(choices, 32)), c_int32(choices.below(5)))
        elif way == 1:
            tokens, steps = choices.below(5), choices.below(45)
            chosen = (c_int32 * max(tokens * steps, 1))()
            output = choices.pick([b"next", b"next", b"logits", b""])
            row = Steps(ctypes.sizeof(Steps), output, tokens, steps, None, None, 0.0, chosen, 0)
            _call("run_steps", model, byref(row))
        else:
            array = StepArray(ctypes.sizeof(StepArray))
            name = choices.pick(ARRAYS)
            if _call("step_array", model, name.encode(), byref(array)) != OK:
                continue
            values, count = _numbers(choices, c_int32, 32)
            size = array.shape[0] * (array.shape[1] if array.dims == 2 else 1)
            ctypes.memmove(array.data, values, 4 * min(count, size))
