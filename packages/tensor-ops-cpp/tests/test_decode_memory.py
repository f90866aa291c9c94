"""Memory of a program, which is known without its weights, and how often its text is parsed."""

import json

import numpy as np
import pytest
from decode_llama import Llama

import tensor_ops_cpp
from tensor_ops_cpp import _native

LLAMA = Llama()


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("activations", ["int8x2", "float32", "bfloat16"])
def test_what_a_program_takes_is_known_without_weights(num_workers, activations):
    """And whatever it is too much for: nothing is taken."""
    options = {"activations": activations}
    made = LLAMA.compile(num_workers=num_workers, options=options)
    program = json.dumps(LLAMA.program)
    given = {"num_workers": num_workers, "options": options}
    assert tensor_ops_cpp.program_memory(program, **given) == made.memory
    made.close()
    limits = {**LLAMA.program["limits"], "num_pages": 2**31 - 1}
    large = json.dumps({**LLAMA.program, "limits": limits})
    caches = tensor_ops_cpp.program_memory(large, **given)["caches"]
    assert caches > 2**31 * made.memory["caches"] / LLAMA.program["limits"]["num_pages"] * 0.9


def test_the_size_of_values_counts_in_a_cache():
    cache = {"num_kv_heads": 3, "head_size": 32, "dtype": "float32", "paged": False}
    taken = []
    for sizes in ({}, {"value_size": 32}, {"value_size": 64}):
        caches = {**LLAMA.program["caches"], "unused": {**cache, **sizes}}
        program = json.dumps({**LLAMA.program, "caches": caches})
        taken.append(tensor_ops_cpp.program_memory(program)["caches"])
    limits = LLAMA.program["limits"]
    floats = limits["max_requests"] * limits["max_seq_length"] * 3 * 32
    assert np.diff(taken).tolist() == [0, 4 * floats]


def test_calls_with_the_same_text_parse_it_once():
    program = json.dumps(LLAMA.program)
    tensor_ops_cpp.supports_program("[]")  # another text
    before = _native.parsed_programs()
    assert tensor_ops_cpp.supports_program(program) is None
    taken = tensor_ops_cpp.program_memory(program)
    layout = tensor_ops_cpp.packed_layout(program)
    made = tensor_ops_cpp.compile_program(program, LLAMA.tensors)
    assert _native.parsed_programs() == before + 1
    assert made.memory == taken
    made.close()
    # A text is another one from its first other byte on, and a wrong one is wrong each time.
    other = json.dumps({**LLAMA.program, "outputs": ["logits"]})
    assert tensor_ops_cpp.packed_layout(other) == layout
    for _ in range(2):
        assert "format must be" in tensor_ops_cpp.supports_program(program.replace("tensor-", "t-"))
    assert tensor_ops_cpp.supports_program(other) is None
    assert _native.parsed_programs() == before + 4


def test_more_rows_than_can_be_shared_are_no_matter_of_memory():
    rows = 2**25

    def node(kind, **slots):
        return {"kind": kind, "name": kind, "attributes": {}, **slots}

    def value(columns):
        return {"rows": "tokens", "columns": columns, "dtype": "float32"}

    program = {
        **LLAMA.program,
        "tensors": {
            "table": {"type": "f32", "shape": [2, 32], "source": {}},
            "matrix": {"type": "q4_0", "shape": [rows, 32], "source": {}},
        },
        "caches": {},
        "values": {"x": value(32), "y": value(rows)},
        "nodes": [
            node(
                "embed",
                inputs={"tokens": "tokens"},
                weights={"weight": ["table"]},
                outputs={"output": "x"},
            ),
            node(
                "linear",
                inputs={"x": "x"},
                weights={"weight": ["matrix"]},
                outputs={"output": "y"},
            ),
        ],
        "outputs": ["y"],
    }
    with pytest.raises(ValueError, match="the matrices have more than 16777200 rows"):
        tensor_ops_cpp.program_memory(json.dumps(program))


def test_a_size_that_no_memory_has_is_a_memory_error():
    limits = dict.fromkeys(("num_pages", "page_size"), 2**31 - 1)
    program = json.dumps({**LLAMA.program, "limits": {**LLAMA.program["limits"], **limits}})
    with pytest.raises(MemoryError, match="its size in bytes is more than any memory"):
        tensor_ops_cpp.program_memory(program)


@pytest.mark.parametrize(
    ("given", "error", "expected"),
    [
        ({"num_workers": 0}, ValueError, "^num_workers must be from 1 to"),
        ({"num_workers": "3"}, TypeError, "^num_workers must be an int or None"),
        ({"options": {"activations": "x"}}, ValueError, "^activations must be"),
        ({"options": {"speed": 1}}, ValueError, "^unknown option 'speed'"),
        ({"options": 3}, TypeError, "program_memory: options must be a mapping or None"),
    ],
)
def test_wrong_settings_of_what_a_program_takes_are_errors(given, error, expected):
    with pytest.raises(error, match=expected):
        tensor_ops_cpp.program_memory(json.dumps(LLAMA.program), **given)
