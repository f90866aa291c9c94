"""The Python side of decode programs; tests/decode has what they compute."""

import copy
import json

import numpy as np
import pytest

import tensor_ops_cuda

ROWS, WIDTH = 50, 64
PROGRAM = {
    "format": "tensor-ops program",
    "version": 2,
    "limits": {
        "max_requests": 2, "max_tokens": 6, "max_selected": 2, "max_seq_length": 32,
        "page_size": 16, "num_pages": 4,
    },
    "tensors": {
        "table": {"type": "bf16", "shape": [ROWS, WIDTH], "source": {"attached": True}},
        "norm": {"type": "f32", "shape": [WIDTH], "source": {"attached": True}},
    },
    "caches": {},
    "values": {
        "x": {"rows": "tokens", "columns": WIDTH, "dtype": "float32"},
        "last": {"rows": "selected", "columns": WIDTH, "dtype": "float32"},
        "normed": {"rows": "selected", "columns": WIDTH, "dtype": "float32"},
        "logits": {"rows": "selected", "columns": ROWS, "dtype": "float32"},
        "next": {"rows": "selected", "columns": 1, "dtype": "int32"},
    },
    "nodes": [
        {
            "kind": "embed", "name": "x", "inputs": {"tokens": "tokens"},
            "weights": {"weight": ["table"]}, "outputs": {"output": "x"}, "attributes": {},
        },
        {
            "kind": "select", "name": "last", "inputs": {"x": "x"}, "weights": {},
            "outputs": {"output": "last"}, "attributes": {},
        },
        {
            "kind": "rms_norm", "name": "normed", "inputs": {"x": "last"},
            "weights": {"weight": ["norm"]}, "outputs": {"output": "normed"},
            "attributes": {"eps": 1e-5},
        },
        {
            "kind": "linear", "name": "logits", "inputs": {"x": "normed"},
            "weights": {"weight": ["table"]}, "outputs": {"output": "logits"}, "attributes": {},
        },
        {
            "kind": "argmax", "name": "next", "inputs": {"x": "logits"}, "weights": {},
            "outputs": {"output": "next"}, "attributes": {},
        },
    ],
    "outputs": ["logits", "next"],
}  # fmt: skip
TEXT = json.dumps(PROGRAM)
TABLE = np.random.default_rng(1).standard_normal((ROWS, WIDTH), dtype=np.float32)
TABLE = (TABLE.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
TENSORS = {"table": TABLE, "norm": np.ones(WIDTH, np.float32)}

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def executable():
    made = tensor_ops_cuda.compile_program(TEXT, TENSORS)
    yield made
    made.close()


def fill(executable):
    """Fill the arrays of a step with a token of each of two requests."""
    arrays = executable.arrays
    for name, values in {"tokens": [3, 4], "positions": [0, 5], "slots": [0, 1]}.items():
        arrays[name][:2] = values
    arrays["selected"][:] = [0, 1]
    arrays["page_table"][:] = [[0, 1], [2, 3]]


def test_a_program_runs_here():
    assert tensor_ops_cuda.CAPABILITIES["runs_programs"]
    assert tensor_ops_cuda.supports_program(TEXT) is None


def test_a_program_that_is_wrong_does_not():
    text = json.dumps(PROGRAM | {"version": 99})
    reason = tensor_ops_cuda.supports_program(text)
    assert "version" in reason
    with pytest.raises(ValueError, match="version") as caught:
        tensor_ops_cuda.compile_program(text, TENSORS)
    assert str(caught.value) == reason


def test_a_program_with_a_draft_does_not():
    program = copy.deepcopy(PROGRAM)
    for node in PROGRAM["nodes"][1:]:
        again = copy.deepcopy(node)
        again["name"] = again["outputs"]["output"] = f"draft.{node['name']}"
        if node["name"] != "last":
            again["inputs"]["x"] = f"draft.{node['inputs']['x']}"
        program["nodes"].append(again)
        program["values"][again["name"]] = PROGRAM["values"][node["name"]]
    guess = {"hidden": "x", "next_hidden": "draft.normed", "tokens": "draft.next"}
    program["outputs"] += guess.values()
    program["draft"] = guess | {"first_node": "draft.last"}
    reason = tensor_ops_cuda.supports_program(json.dumps(program))
    assert reason == "the executor of cuda runs no draft steps; leave num_speculative_tokens out"


def test_steps_write_the_arrays(executable):
    fill(executable)
    executable.run(2, 2)
    logits, chosen = executable.arrays["logits"], executable.arrays["next"]
    assert (logits.shape, logits.dtype) == ((2, ROWS), np.float32)
    assert np.array_equal(chosen.ravel(), logits.argmax(axis=1))
    assert executable.first_nan(2, 2, 0) is None


def test_steps_in_a_row_are_those_one_by_one(executable):
    fill(executable)
    together = executable.run_steps(2, 3, "next", [[], []])
    assert (together.shape, together.dtype) == ((3, 2), np.int32)
    fill(executable)
    for i, row in enumerate(together):
        executable.run(2, 2)
        assert np.array_equal(executable.arrays["next"].ravel(), row)
        executable.arrays["tokens"][:2] = row
        executable.arrays["positions"][:2] = [i + 1, i + 6]


def test_a_step_that_is_wrong_is_refused(executable):
    with pytest.raises(ValueError, match=r"^run: "):
        executable.run(7, 2)
    with pytest.raises(ValueError, match=r"^run: "):
        executable.run(-1, 0)


def test_a_profile_has_a_row_of_nodes(executable):
    fill(executable)
    times = executable.profile(2, 2)
    assert times["work"].shape == times["wait"].shape == (1, len(PROGRAM["nodes"]))
    assert np.all(times["work"] >= 0)
    assert not times["wait"].any()
    assert times["seconds"] > 0


def test_the_weights_are_copied_to_measure_the_memory(executable):
    assert executable.read_bandwidth() > 0
    executable.close()
    with pytest.raises(RuntimeError, match="read_bandwidth: the executable is closed"):
        executable.read_bandwidth()


def test_what_it_takes_is_known_before(executable, device):
    assert executable.memory == tensor_ops_cuda.program_memory(TEXT)
    assert executable.options == {"activations": "int8x2", "use_cutlass_kernel": True}
    assert executable.num_workers == device.compute_units


def test_a_closed_executable_keeps_its_arrays(executable):
    fill(executable)
    arrays = executable.arrays
    executable.close()
    executable.close()
    with pytest.raises(RuntimeError, match="closed"):
        executable.run(2, 2)
    assert np.array_equal(arrays["tokens"][:2], [3, 4])


def test_steps_run_on_a_stream_of_the_caller(runtime):
    stream = runtime.stream()
    made = tensor_ops_cuda.compile_program(TEXT, TENSORS, options={"stream": stream})
    fill(made)
    made.run(2, 2)
    assert runtime.is_idle(stream)
    right = tensor_ops_cuda.compile_program(TEXT, TENSORS)
    fill(right)
    right.run(2, 2)
    assert made.arrays["logits"].tobytes() == right.arrays["logits"].tobytes()
    made.close()
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        tensor_ops_cuda.compile_program(TEXT, TENSORS, options={"stream": 12345})


def test_the_number_of_blocks_can_be_chosen(device):
    most = tensor_ops_cuda._native.most_workers()
    assert most >= device.compute_units
    for count in (1, np.int64(most)):
        made = tensor_ops_cuda.compile_program(TEXT, TENSORS, num_workers=count)
        assert made.num_workers == count
        made.close()
    for wrong in (0, most + 1, 2**70):
        with pytest.raises(ValueError, match=f"num_workers must be from 1 to {most}, got {wrong}"):
            tensor_ops_cuda.compile_program(TEXT, TENSORS, num_workers=wrong)
    with pytest.raises(TypeError, match="num_workers must be an int or None, got bool"):
        tensor_ops_cuda.program_memory(TEXT, num_workers=True)


@pytest.mark.parametrize("uses_tensor_cores", [True, False])
@pytest.mark.parametrize("names", [("activations",), ("use_cutlass_kernel",), None])
def test_options_that_it_has(names, uses_tensor_cores):
    activations = "int8x2" if uses_tensor_cores else "float32"
    right = {"activations": activations, "use_cutlass_kernel": uses_tensor_cores}
    options = {name: right[name] for name in names or right}
    executable = tensor_ops_cuda.compile_program(TEXT, TENSORS, options=options)
    assert executable.options == right
    executable.close()


@pytest.mark.parametrize("name", ["int8", "bfloat16"])
def test_other_activations_are_refused(name):
    message = f"activations is '{name}', and the executor of cuda has 'int8x2', "
    for function in (tensor_ops_cuda.compile_program, tensor_ops_cuda.program_memory):
        arguments = (TEXT, TENSORS) if function is tensor_ops_cuda.compile_program else (TEXT,)
        with pytest.raises(ValueError, match=message):
            function(*arguments, options={"activations": name})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"speed": 1}, ValueError, "unknown option 'speed'; valid: activations, stream, use"),
        ({"activations": "int4"}, ValueError, "'int8x2', 'int8', 'bfloat16' or 'float32', got"),
        (
            {"use_cutlass_kernel": False, "activations": "int8x2"},
            ValueError,
            "use_cutlass_kernel is False, whose activations are 'float32', got 'int8x2'",
        ),
        ({"stream": True}, TypeError, "stream must be the handle of a stream, an int, got bool"),
        ({"use_cutlass_kernel": 1}, TypeError, "use_cutlass_kernel must be a bool .* got int"),
        ("int8x2", TypeError, "compile_program: options must be a mapping or None, got str"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        tensor_ops_cuda.compile_program(TEXT, TENSORS, options=options)


def test_tensors_are_bytes_or_numbers():
    given = {name: array.view(np.uint8).reshape(-1) for name, array in TENSORS.items()}
    for array in given.values():
        array.flags.writeable = False
    tensor_ops_cuda.compile_program(TEXT, given).close()


def test_tensors_of_pytorch_are_taken():
    torch = pytest.importorskip("torch")
    table = torch.from_numpy(TABLE.view(np.int16)).view(torch.bfloat16)
    tensors = {"table": table, "norm": torch.ones(WIDTH)}
    tensor_ops_cuda.compile_program(TEXT, tensors).close()
    tensors["norm"].requires_grad_(True)
    with pytest.raises(ValueError, match="norm requires grad, and tensor_ops_cuda computes no"):
        tensor_ops_cuda.compile_program(TEXT, tensors)


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (TABLE[:, ::2], ValueError, "tensor 'table' is not C-contiguous"),
        (TABLE[1:], ValueError, r"'table' must be bf16 of shape \(50, 64\) or its bytes as uint8"),
        (3, TypeError, "tensor 'table' is not an array in host memory"),
    ],
)
def test_wrong_tensors_are_refused(tensor, error, message):
    with pytest.raises(error, match=f"^compile_program: .*{message}"):
        tensor_ops_cuda.compile_program(TEXT, TENSORS | {"table": tensor})


def test_progress_goes_up_to_all_bytes_and_may_stop():
    seen = []
    tensor_ops_cuda.compile_program(TEXT, TENSORS, progress=lambda *pair: seen.append(pair)).close()
    done, sizes = zip(*seen, strict=True)
    assert list(done) == sorted(done)
    assert {*sizes} == {done[-1]}

    def stop(done, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tensor_ops_cuda.compile_program(TEXT, TENSORS, progress=stop)
    with pytest.raises(TypeError, match="progress must be callable, got int"):
        tensor_ops_cuda.compile_program(TEXT, TENSORS, progress=1)


def test_arguments_of_wrong_types_are_refused():
    with pytest.raises(TypeError, match="program must be a str of JSON, got NoneType"):
        tensor_ops_cuda.supports_program(None)
    with pytest.raises(TypeError, match="tensors must be a mapping of names, got list"):
        tensor_ops_cuda.compile_program(TEXT, [TENSORS])


def test_no_change_of_a_node_crashes():
    for node in range(len(PROGRAM["nodes"])):
        for key in ("kind", "inputs", "weights", "outputs", "attributes"):
            for value in (None, 0, "", "tokens", [], {}, {"x": "x"}):
                program = copy.deepcopy(PROGRAM)
                program["nodes"][node][key] = value
                reason = tensor_ops_cuda.supports_program(json.dumps(program))
                assert reason is None or isinstance(reason, str)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"DRIVER": "none"}, "there is no NVIDIA driver"),
        ({"CAPABILITY": "7.5"}, "compute capability 8.0"),
    ],
)
def test_devices_that_run_no_programs(python, runtime, settings, reason):
    code = f"""
import tensor_ops_cuda
text = {TEXT!r}
reason = tensor_ops_cuda.supports_program(text)
try:
    tensor_ops_cuda.compile_program(text, {{}})
except RuntimeError as error:
    assert reason in str(error), (reason, error)
    print(reason)
"""
    settings = {f"TENSOR_OPS_EMULATED_{name}": value for name, value in settings.items()}
    assert reason in python(code, fails=False, **settings)
