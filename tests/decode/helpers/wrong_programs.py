"""Programs that every executor must refuse, and programs at the edges that every one must take.

Each entry is a place in the program of `whole_programs.base_program`, what stands there instead,
and the words that the message must have. A place is the keys that lead to it, with a node's name as
its key. What is allowed is allowed in the program of `program_for` too, if that has the same node.
"""

import copy
import json

from whole_programs import LIMITS, base_program

MOST = 2**31 - 1
DELETED = object()


class Text(str):
    """JSON that stands in a program as it is."""


_WHOLE = base_program().to_json()
_NAME = '"mlp"'


def text_with(changes, whole=_WHOLE):
    """Return the JSON of a program, of the base program by default, with other values at places."""
    data, texts = json.loads(whole), {}
    for place, value in changes.items():
        *parents, last = place.split("/")
        part = data
        for key in parents:
            part = part[_key(part, key)]
        if value is DELETED:
            del part[_key(part, last)]
            continue
        is_text = isinstance(value, Text)
        if is_text:
            texts[f"JSON of {place}"] = value
        part[_key(part, last)] = f"JSON of {place}" if is_text else copy.deepcopy(value)
    text = json.dumps(data)
    for mark, value in texts.items():
        text = text.replace(f'"{mark}"', value)
    return text


def has_places(changes, program):
    """Return whether the nodes at some places are in a program as they are in the base program."""
    kinds, expected = (
        {node["name"]: node["kind"] for node in json.loads(text)["nodes"]}
        for text in (program.to_json(), _WHOLE)
    )
    names = [place.split("/")[1] for place in changes if place.startswith("nodes/")]
    return all(kinds.get(name) == expected[name] for name in names)


def _key(part, name):
    """Return the key itself, or the index of the node of that name."""
    if isinstance(part, dict):
        return name
    return next(index for index, each in enumerate(part) if each["name"] == name)


def _each(places, values):
    """Return an entry for each value at each place; the message names the last key."""
    return [(place, value, [place.split("/")[-1]]) for place in places for value in values]


def _each_integer(places, values):
    """Return such entries, of messages that name the value too."""
    return [(place, value, [*words, str(value)]) for place, value, words in _each(places, values)]


_SIZES = [f"limits/{name}" for name in vars(LIMITS) if name != "extra_states"]
_SIZES += [f"caches/cache of first/{name}" for name in ("num_kv_heads", "head_size")]
_SIZES += ["values/y/columns"]
_NO_INTEGERS = [None, True, 1.0, 1.5, Text("1e0"), "1", [1], {}, DELETED]
_TOO_LARGE = [2**31, 2**32, 2**53, 2**63 - 1]
_NO_NUMBERS = [None, True, "1", [], {}, DELETED]
_NO_NAMES = [None, 1, True, [], {}, DELETED]
_NO_OBJECTS = [None, 1, "x", [], True, DELETED]
_NORM, _QKV, _FIRST = "nodes/normed", "nodes/qkv", "nodes/first"
_COUNTS = [f"{_FIRST}/attributes/{key}" for key in ("num_heads", "num_kv_heads", "head_size")]

# Places, values, and the words of the message.
WRONG_PROGRAMS = [
    ("format", "another", ["format", "tensor-ops program"]),
    *_each(["format"], [None, 1, DELETED]),
    ("version", 3, ["version must be 2, got 3"]),
    *(("version", value, ["version must be"]) for value in (True, 1.0, "1", None)),
    ("version", DELETED, ["version"]),
    ("more", 1, ["more"]),
    *_each(["limits", "tensors", "caches", "values"], _NO_OBJECTS),
    *_each(["nodes", "outputs"], [None, 1, "x", {}, True, DELETED]),
    *_each(_SIZES, [*_NO_INTEGERS, 2**63, 10**30]),
    *_each_integer(_SIZES, [0, -1, *_TOO_LARGE]),
    *_each(["limits/extra_states"], [None, True, 1.0, "1", [1], 2**63]),
    *_each_integer(["limits/extra_states"], [-1, *_TOO_LARGE]),
    ("limits/more", 1, ["limits", "more"]),
    ("limits/max_seq_length", 33, ["cos", "32", "33", "max_seq_length"]),
    # Tensors.
    ("tensors/table/type", "q8_1", ["table", "q8_1", "q8_0"]),
    *(("tensors/table/type", value, ["table", "type"]) for value in (None, 1, [], DELETED)),
    *(
        ("tensors/table/shape", value, ["table"])
        for value in (None, 32, "32", {}, [], [[10, 32]], [10, None], [10.0, 32], [True, 32])
    ),
    ("tensors/table/shape", [1, 2, 3, 4], ["table", "one to three dimensions"]),
    ("tensors/table/shape", [1, 2, 3], ["embed", "weight"]),
    *(
        ("tensors/table/shape", shape, ["table", "from 1", str(size)])
        for size in (0, -1, 2**31, 2**53)
        for shape in ([10, size], [size, 32], [size])
    ),
    ("tensors/table/shape", [MOST, MOST], ["table", "any memory", str(MOST)]),
    ("tensors/table/shape", [2**25, 2**20 + 1], ["table", "any memory", str(2**20 + 1)]),
    ("tensors/matrix/shape", [16, 33], ["matrix", "multiple of 32", "33"]),
    ("tensors/table/more", 1, ["table", "more"]),
    *(("tensors/table/source", value, ["table", "source"]) for value in _NO_OBJECTS),
    # Caches.
    *(
        ("caches/cache of first/dtype", value, ["cache of first", "dtype"])
        for value in ("bfloat16", "", None, 1, DELETED)
    ),
    *(
        ("caches/cache of first/paged", value, ["cache of first", "paged"])
        for value in (None, 0, 1, "true", DELETED)
    ),
    ("caches/cache of first/more", 1, ["cache of first", "more"]),
    ("caches/cache of first/head_size", 16, ["first", "cache", "16"]),
    ("caches/cache of first/num_kv_heads", 2, ["first", "cache", "2"]),
    # Values.
    ("values/x/columns", 31, ["x", "31", "32"]),
    ("values/x/rows", "selected", ["'x'", "tokens"]),
    *(("values/x/rows", value, ["'x'", "rows"]) for value in ("all", "", None, 1, DELETED)),
    ("values/x/dtype", "int32", ["'x'", "float32"]),
    *(("values/x/dtype", value, ["'x'", "dtype"]) for value in ("float16", None, 1, DELETED)),
    ("values/x/more", 1, ["'x'", "more"]),
    ("values/spare", {"rows": "tokens", "columns": 1, "dtype": "int32"}, ["'spare'", "no node"]),
    ("values/tokens", {"rows": "tokens", "columns": 2, "dtype": "int32"}, ["'tokens'", "int32"]),
    # Nodes.
    ("nodes/x/kind", "embedding", ["embedding", "rms_norm"]),
    ("nodes/x/more", 1, ["more"]),
    *_each([f"nodes/x/{key}" for key in ("kind", "name")], _NO_NAMES),
    *_each(
        ["nodes/x/inputs", "nodes/x/outputs", "nodes/x/attributes"], [None, 1, "x", [], DELETED]
    ),
    ("nodes/x/inputs", {}, ["'x'", "tokens", "missing"]),
    ("nodes/x/inputs/tokens", "first", ["tokens", "'first'", "no node before"]),
    ("nodes/x/inputs/tokens", "absent", ["tokens", "'absent'"]),
    ("nodes/x/inputs/more", "tokens", ["'x'", "more"]),
    *(("nodes/x/inputs/tokens", value, ["tokens"]) for value in (None, 1, ["tokens"], {})),
    ("nodes/x/weights/weight", ["absent"], ["weight", "'absent'", "missing"]),
    ("nodes/x/weights/weight", ["table", "table"], ["weight", "one tensor", "2"]),
    ("nodes/x/weights/weight", [], ["'x'", "weight"]),
    *(("nodes/x/weights/weight", value, ["weight"]) for value in ("table", None, 1, {}, [1], [[]])),
    ("nodes/x/weights", {}, ["'x'", "weight", "missing"]),
    ("nodes/x/weights/bias", ["norm"], ["'x'", "bias"]),
    ("nodes/x/weights/weight", ["norm"], ["weight"]),
    ("nodes/x/outputs", {}, ["output", "missing"]),
    ("nodes/x/outputs/more", "y", ["'x'", "more"]),
    ("nodes/x/outputs/output", "absent", ["'absent'"]),
    ("nodes/x/outputs/output", "tokens", ["'tokens'", "twice"]),
    ("nodes/normed/outputs/output", "x", ["'x'", "twice"]),
    ("nodes/normed/name", "x", ["same name"]),
    ("nodes/last/inputs/x", "raw", ["'raw'", "no node before"]),
    ("nodes/largest/inputs/x", "tokens", ["x", "float32", "int32"]),
    ("nodes/gated/inputs/x", "x", ["'gated'"]),
    ("nodes/next", DELETED, ["'next'", "no node"]),
    # Attributes.
    *_each([f"{_NORM}/attributes/eps", "nodes/scaled/attributes/factor"], _NO_NUMBERS),
    (f"{_NORM}/attributes/eps", -1, ["'normed'", "eps must be at least 0, got -1"]),
    (f"{_NORM}/attributes/eps", 10**400, []),  # beyond float64
    (f"{_QKV}/attributes/more", 1, ["'qkv'", "more"]),
    ("nodes/logits/attributes/cap", 0, ["'logits'", "cap must be at least", "got 0"]),
    *_each([*_COUNTS, f"{_FIRST}/attributes/window"], [*_NO_INTEGERS, 2**63, 10**30]),
    *_each_integer(_COUNTS, [0, -1, *_TOO_LARGE]),
    *_each_integer([f"{_FIRST}/attributes/window"], [-1, *_TOO_LARGE]),
    (f"{_FIRST}/attributes/num_heads", 3, ["'first'", "qkv"]),
    (f"{_FIRST}/attributes/num_kv_heads", 3, ["'first'", "num_kv_heads", "3"]),
    (f"{_FIRST}/attributes/rotation", "both", ["rotation", "both", "halves", "interleaved"]),
    *((f"{_FIRST}/attributes/rotation", value, ["rotation"]) for value in (None, 1, "", DELETED)),
    *(
        (f"{_FIRST}/attributes/cache", value, ["cache"])
        for value in ("absent", None, ["cache"], {})
    ),
    (f"{_FIRST}/attributes/cache", "cache of second", ["cache"]),
    ("nodes/gelued/attributes/approximate", "erf", ["approximate", "erf", "tanh", "none"]),
    # Weights of nodes.
    (f"{_NORM}/weights/weight", ["matrix"], ["'normed'", "weight"]),
    (f"{_NORM}/weights/weight", ["bias"], ["'normed'", "weight", "16"]),
    (f"{_QKV}/weights/weight", ["matrix", "out"], ["'qkv'", "columns"]),
    (f"{_QKV}/weights/weight", ["matrix"], ["'qkv'", "bias"]),
    (f"{_QKV}/weights/bias", ["bias"], ["'qkv'", "bias"]),
    (f"{_QKV}/weights/bias", ["bias", "head"], ["'qkv'", "bias"]),
    (f"{_QKV}/weights/bias", None, ["bias"]),
    (f"{_FIRST}/weights/sin", DELETED, ["'first'", "sin"]),
    (f"{_FIRST}/weights/sin", None, ["sin"]),
    (f"{_FIRST}/weights/sin", ["out"], ["'first'", "sin"]),
    (f"{_FIRST}/weights/q_norm", ["bias"], ["'first'", "norm", "16", "8"]),
    ("nodes/y/inputs/b", "first", ["'y'", "16", "32"]),
    ("nodes/y/inputs/b", "last", ["'y'"]),
    ("nodes/sum/inputs/b", "first", ["'sum'", "b"]),
    # Outputs.
    ("outputs", ["absent"], ["outputs", "'absent'"]),
    ("outputs", ["next", "next"], ["outputs", "twice"]),
    ("outputs", ["tokens"], ["outputs", "'tokens'"]),
    ("outputs", [1], ["outputs"]),
    ("outputs", [["next"]], ["outputs"]),
    ("outputs", [None], ["outputs"]),
]

# Changes at several places.
WRONG_TOGETHER = [
    # An argmax may be beyond the last row of a table.
    (
        {
            "nodes/last": {
                "kind": "embed",
                "name": "last",
                "inputs": {"tokens": "chosen"},
                "weights": {"weight": ["table"]},
                "outputs": {"output": "last"},
                "attributes": {},
            },
            "nodes/scaled": {
                "kind": "argmax",
                "name": "scaled",
                "inputs": {"x": "both"},
                "weights": {},
                "outputs": {"output": "chosen"},
                "attributes": {},
            },
            "values/chosen": {"rows": "tokens", "columns": 1, "dtype": "int32"},
            "values/scaled": DELETED,
        },
        ["'last'", "tokens must be the value 'tokens', got 'chosen'"],
    ),
    (
        {"limits/max_tokens": MOST, "values/wide/columns": 2**20},
        ["'wide'", "any memory", str(MOST), str(2**20)],
    ),
]

# Texts that are no program, as str or as bytes.
WRONG_TEXTS = {
    "nothing": "",
    "no bytes": b"",
    "a number": "3",
    "a list": "[]",
    "an open object": "{",
    "an open list": "[1, 2",
    "few keys": '{"format": "tensor-ops program", "version": 2}',
    "a second value": _WHOLE + "{}",
    "a comma too many": _WHOLE[:-1] + ",}",
    "a comment": "// program\n" + _WHOLE,
    "a NUL behind it": _WHOLE + "\0",
    "deep nesting": "[" * 100_000,
    "deep nesting that ends": '{"a":' * 5000 + "1" + "}" * 5000,
    "a key twice": _WHOLE.replace('"version": 2,', '"version": 2, "version": 2,'),
    "an inner key twice": _WHOLE.replace('"page_size": 4', '"page_size": 4, "page_size": 4'),
    "half of a surrogate pair": _WHOLE.replace(_NAME, '"\\ud800"'),
    "a surrogate pair in the wrong order": _WHOLE.replace(_NAME, '"\\udc00\\ud800"'),
    "half of a pair that is no escape": _WHOLE.replace(_NAME, '"\ud800"'),
    "an unknown escape": _WHOLE.replace(_NAME, '"\\x"'),
    "a short escape": _WHOLE.replace(_NAME, '"\\u12"'),
    "a control character in a string": _WHOLE.replace(_NAME, '"\t"'),
    "a byte-order mark": "\ufeff" + _WHOLE,
    "a byte-order mark in bytes": b"\xef\xbb\xbf" + _WHOLE.encode(),
    "UTF-16": _WHOLE.encode("utf-16"),
    "UTF-32": _WHOLE.encode("utf-32-le"),
    "Latin-1": _WHOLE.replace(_NAME, '"\xe4"').encode("latin-1"),
    "UTF-8 that is too long": _WHOLE.encode().replace(_NAME.encode(), b'"\xc0\xaf"'),
    "a surrogate in UTF-8": _WHOLE.encode().replace(_NAME.encode(), b'"\xed\xa0\x80"'),
    **{
        f"{text} as a number": _WHOLE.replace('"scale": 0.5', f'"scale": {text}')
        for text in (
            "01",
            "+1",
            ".5",
            "1.",
            "0x1",
            "1_0",
            "-",
            "1e",
            "nul",
            "NaN",
            "1e400",
            "-Infinity",
        )
    },
    "an integer of 5000 digits": _WHOLE.replace('"scale": 0.5', f'"scale": 1{"0" * 5000}'),
}

_PART = {"tensor": "t", "shape": [64, 32], "transform": ["rows:0:8"]}
# Only who loads the weights reads where they come from; executors are handed their bytes.
WRONG_SOURCES = [
    ({"attached": 1}, ["source"]),
    ({"attached": True, "more": 1}, ["source", "more"]),
    ({"attached": 1} | _PART, ["source", "1"]),
    ({"attached": True} | _PART | {"tensor": 1}, ["source", "array", "1"]),
    ({"attached": True} | _PART | {"shape": 64}, ["list of its dimensions", "64"]),
    ({"attached": True} | _PART | {"shape": [64, 0]}, ["dimension", "0"]),
    ({"attached": True} | _PART | {"transform": ["plus_one"]}, ["rows:a:b", "plus_one"]),
    ({"attached": True} | _PART | {"transform": "rows:0:8"}, ["list of planes:a:b"]),
    ({"file": "f", "tensor": "t"}, ["source"]),
    ({"file": "f", "tensor": "t", "transform": ["shuffle"]}, ["shuffle", "transpose"]),
    ({"file": 1, "tensor": "t", "transform": []}, ["source", "1"]),
    ({"rotary": "tan", "frequencies": [1.0] * 32, "factor": 1.0}, ["rotary", "tan"]),
    ({"rotary": "cos", "frequencies": [1.0] * 32, "factor": "1"}, ["factor", "finite"]),
    ({"rotary": "cos", "frequencies": [True] * 32, "factor": 1.0}, ["frequencies", "finite"]),
    ({"rotary": "cos", "growth": 0.5, "length": 16}, ["rotary", "query_scale", "cos"]),
    ({"rotary": "query_scale", "growth": "0.5", "length": 16}, ["growth", "finite"]),
    ({"rotary": "query_scale", "growth": 0.5, "length": 0}, ["length", "integer from 1"]),
    ({"rotary": "query_scale", "growth": 0.5, "length": 16}, ["f32 with one column"]),
    ({"rotary": "cos", "frequencies": [1.0] * 3, "factor": 1.0}, ["column for each frequency"]),
]

# Allowed changes, by the place in the base program.
ALLOWED_PROGRAMS = {
    "nothing changed": {},
    **{f"{place} of 2**31 - 1": {place: MOST} for place in _SIZES[:3] + _SIZES[4:6]},
    "a cache that is not used": {
        "caches/spare": {"num_kv_heads": MOST, "head_size": MOST, "dtype": "int8", "paged": False}
    },
    "a tensor that is not used": {
        "tensors/spare": {"type": "f32", "shape": [1, MOST], "source": {"attached": True}}
    },
    "as many bytes as there may be": {
        "tensors/spare": {"type": "f32", "shape": [2**25, 2**20], "source": {"attached": True}}
    },
    "a window of 2**31 - 1": {f"{_FIRST}/attributes/window": MOST},
    "a window of -0": {f"{_FIRST}/attributes/window": Text("-0")},
    "no window": {f"{_FIRST}/attributes/window": 0},
    "a scale of 0": {f"{_FIRST}/attributes/scale": 0},
    "an integer as a number": {f"{_FIRST}/attributes/scale": -2},
    "the smallest number": {"nodes/scaled/attributes/factor": Text("-1.7976931348623157e308")},
    "a subnormal number": {"nodes/scaled/attributes/factor": Text("1e-320")},
    "a number that rounds to 0": {"nodes/scaled/attributes/factor": Text("1e-400")},
    "a number of many digits": {f"{_FIRST}/attributes/scale": Text("0." + "123456789" * 200)},
    "an eps of 0": {f"{_NORM}/attributes/eps": 0},
    "the smallest cap": {"nodes/logits/attributes/cap": 2**-20},
    "the predefined value": {"values/tokens": {"rows": "tokens", "columns": 1, "dtype": "int32"}},
    "no outputs": {"outputs": []},
    "an empty name": {"nodes/x/name": ""},
    "a long name": {"nodes/x/name": "x" * 100_000},
    "any characters in a name": {"nodes/x/name": '\0\n"\\/\N{GRINNING FACE}\uffff'},
}
