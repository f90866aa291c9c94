"""Calls of ops: what arrives in the library, by typed methods and by name, and what is refused."""

import subprocess

import pytest

ROWS = "d0(2,3)"


@pytest.fixture(scope="module")
def calls(program, fake, tmp_path_factory):
    """A function that makes the calls of calls.cpp, and returns what came of each by its name."""
    path = program("calls")
    results = {}

    def done(**macros):
        key = tuple(macros.items())
        if key not in results:
            folder = tmp_path_factory.mktemp("libraries")
            fake(folder, **macros)
            environment = {"TENSOR_OPS_BACKEND_PATH": str(folder), "HOME": str(folder)}
            made = subprocess.run(
                [path], env=environment, capture_output=True, text=True, check=True
            )
            pairs = (line.partition(": ")[::2] for line in made.stdout.splitlines())
            results[key] = dict(pairs)
        return results[key]

    return done


def arrived(op, inputs, outputs, scalars="", choice=0, threads=0, stream=0):
    numbers = f" {scalars}" if scalars else ""
    return (
        f"{op} in {inputs} out {outputs} scalars{numbers} choice {choice} threads {threads} "
        f"stream {stream}"
    )


def test_typed_methods_pass_arrays_scalars_and_options(calls):
    found = calls()
    assert found["typed"] == arrived("rms_norm", f"{ROWS} d0(3)", ROWS, "1e-06")
    assert found["eps"] == arrived("rms_norm", f"{ROWS} d0(3)", ROWS, "0.001")
    assert found["options"] == arrived(
        "rms_norm", f"{ROWS} d0(3)", ROWS, "1e-06", threads=2, stream=1
    )
    assert found["vectors"] == arrived("gelu", "d0(6)", "d0(6)")
    assert found["choice"] == arrived("gelu", "d3(6)", "d3(6)", choice=1)
    assert found["flag"] == arrived("rope", f"{ROWS} d0(3) d0(3)", ROWS, choice=1)
    assert found["bias"] == arrived("layer_norm", f"{ROWS} d0(3) d0(3)", ROWS, "1e-05")
    assert found["no bias"] == arrived("layer_norm", f"{ROWS} d0(3) none", ROWS, "0.001")
    assert found["two outputs"] == arrived(
        "add_rms_norm", f"{ROWS} {ROWS} d0(3)", f"{ROWS} {ROWS}", "1e-06"
    )
    assert "written" in found


def test_an_op_that_the_library_lacks_is_an_error(calls):
    assert calls()["missing in the library"] == (
        "TypeError: backend 'cpp' 1.2.3 has no op 'softmax'; It has: add_rms_norm, gelu, "
        "layer_norm, rms_norm, rope"
    )


def test_arrays_are_made_of_pointers_vectors_and_tensors(calls):
    found = calls()
    assert found["pointer"] == arrived("gelu", ROWS, f"{ROWS}[12,4]")
    assert found["const pointer"] == arrived("gelu", "d0(3)", "d0(3)")
    assert found["half"] == arrived("gelu", "d1(6)", "d1(6)")
    assert found["bits"] == arrived("gelu", "d2(3)[4]", "d2(3)")
    assert found["device"] == arrived("gelu", "d0(6)@2:1", "d0(6)@2:1")
    assert found["nine axes"] == arrived("gelu", "d0(1,1,1,1,1,1,1,2,3)", "d0(1,1,1,1,1,1,1,2,3)")
    assert found["sizes"] == arrived("gelu", ROWS, f"{ROWS}[12,4]")
    assert found["scalar array"] == arrived("gelu", "d0()", "d0()")
    assert found["dlpack"] == arrived("gelu", ROWS, ROWS)
    assert found["dlpack with strides"] == arrived("gelu", "d2(2,3)[6,2]@2:3", ROWS)
    assert "offset counts" in found


def test_calls_by_name_sort_what_they_are_given(calls):
    found = calls()
    assert found["generic"] == arrived("rms_norm", f"{ROWS} d0(3)", ROWS, "1e-06")
    assert found["generic by name"] == arrived("layer_norm", f"{ROWS} d0(3) none", ROWS, "1")
    assert found["generic choice"] == arrived("gelu", "d0(6)", "d0(6)", choice=1)
    assert found["generic flag"] == arrived("rope", "d0(6) d0(3) d0(3)", "d0(6)", choice=1)
    assert found["generic options"] == arrived("gelu", "d0(6)", "d0(6)", threads=5)
    assert found["generic outputs"] == arrived(
        "add_rms_norm", "d0(6) d0(6) d0(3)", "d0(6) d0(6)", "1e-06"
    )
    # It is the library that knows which arrays it needs.
    assert found["generic without x"] == arrived("gelu", "none", "none")
    assert found["ops"] == "add_rms_norm gelu layer_norm rms_norm rope as they should"


REFUSED = {
    "no such op": "TypeError: backend 'cpp' 1.2.3 has no op 'rmsnorm'; did you mean 'rms_norm'? It",
    "no such input": "TypeError: gelu() has no input 'input'; It has: x",
    "no such output": "TypeError: gelu() has no output 'z'; It has: y",
    "no such setting": "TypeError: rms_norm() has no setting 'epsilon'; did you mean 'eps'? It",
    "too many inputs": "TypeError: gelu() takes 1 input (x), got 2",
    "twice": "TypeError: gelu() got two arrays for 'x'; give it once",
    "setting twice": "TypeError: rms_norm() got 'eps' twice; give it once",
    "wrong word": "ValueError: gelu(): approximate must be 'tanh' or 'none', got 'erf'",
    "word for a number": "TypeError: rms_norm(): eps must be a number, got 'big'",
    "number for a word": "TypeError: gelu(): approximate must be 'tanh' or 'none', got a number",
    "wrong shape": "ValueError: a vector of 6 elements cannot have the shape (2, 2); give a shape",
    "negative shape": "ValueError: a vector of 6 elements cannot have the shape (-2, -3); give a",
    "overflowing shape": "ValueError: a vector of 6 elements cannot have the shape (461168601842",
    "strides without axes": "ValueError: an array of 1 axes has 2 strides; give one in bytes",
    "dlpack of integers": "TypeError: a DLPack tensor has elements of code 0, 32 bits and 1 lane",
    "dlpack of vectors": "TypeError: a DLPack tensor has elements of code 2, 32 bits and 4 lane",
    "dlpack without a shape": "ValueError: a DLPack tensor of 2 axes has no shape; give one length",
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_calls_are_refused(calls, name):
    assert calls()[name].startswith(REFUSED[name])


STATUSES = {
    "TYPE_ERROR": "TypeError",
    "VALUE_ERROR": "ValueError",
    "MEMORY_ERROR": "MemoryError",
    "UNAVAILABLE": "UnavailableError",
    "RUNTIME_ERROR": "Error",
}


@pytest.mark.parametrize("status", STATUSES)
def test_errors_of_the_library_become_exceptions_with_its_message(calls, status):
    found = calls(STATUS=f"TENSOR_OPS_{status}")
    for call in ("typed", "two outputs", "generic", "generic flag"):
        assert found[call] == f"{STATUSES[status]}: the fake's message"
