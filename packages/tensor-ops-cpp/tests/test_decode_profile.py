"""Measurements of an executable: its steps node by node, and how fast its threads read weights."""

import json

import numpy as np
import pytest
from decode_llama import WORDS, Llama, run_alone, run_step

import tensor_ops_cpp

TOKENS = np.random.default_rng(5).integers(0, WORDS, 30)
LLAMA = Llama()
KINDS = [node["kind"] for node in LLAMA.program["nodes"]]


@pytest.fixture(params=[1, 3])
def executable(request):
    made = LLAMA.compile(num_workers=request.param)
    yield made
    made.close()


@pytest.mark.parametrize("count", [1, 30])
def test_each_thread_spends_the_step_working_or_waiting(executable, count):
    run_step(executable, [(0, 0, TOKENS[:count])])
    times = executable.profile(count, count)
    workers, nodes = times["work"].shape
    assert 1 <= workers <= executable.num_workers  # fewer beside busy processes
    assert nodes == len(KINDS)
    assert times["wait"].shape == (workers, nodes)
    for what in ("work", "wait"):
        assert times[what].dtype == np.float64
        assert np.all(times[what] >= 0)
    spent = (times["work"] + times["wait"]).sum(axis=1)
    assert np.all(spent > 0)
    assert np.all(spent <= times["seconds"] * (1 + 1e-9))


def test_a_step_has_the_number_of_workers_that_is_held():
    made = LLAMA.compile(num_workers=4)
    run_step(made, [(0, 0, TOKENS[:1])])
    for held in (3, 1, 4):
        made.hold_workers(held)
        assert len(made.profile(1, 1)["work"]) == held
    made.hold_workers(None)
    assert 1 <= len(made.profile(1, 1)["work"]) <= 4
    for wrong in (0, 5, -1, 2**70):
        with pytest.raises(ValueError, match=rf"num_workers must be from 1 to 4, got {wrong}$"):
            made.hold_workers(wrong)
    with pytest.raises(TypeError, match="num_workers must be an int or None, got str"):
        made.hold_workers("2")
    made.close()
    with pytest.raises(RuntimeError, match="hold_workers: the executable is closed; compile"):
        made.hold_workers(1)


def test_a_profiled_step_computes_what_a_step_does(executable):
    expected = run_alone(executable, TOKENS, 4)[0][-2:]
    executable.arrays["logits"][:] = 0
    executable.profile(2, 2)
    np.testing.assert_array_equal(executable.arrays["logits"][:2], expected)


def test_a_node_without_rows_takes_no_time(executable):
    run_step(executable, [(0, 0, TOKENS[:3])])
    work = executable.profile(3, 0)["work"]
    assert np.all(work[:, KINDS.index("sample")] == 0)
    assert np.all(work[:, KINDS.index("attention")].sum() > 0)


def test_a_profile_of_a_wrong_step_is_an_error_before_anything_runs(executable):
    run_step(executable, [(0, 0, TOKENS[:3])])
    executable.arrays["logits"][:] = 7
    with pytest.raises(ValueError, match="num_tokens must be from 1 to 40, got 41"):
        executable.profile(41, 1)
    assert np.all(executable.arrays["logits"] == 7)


def test_weights_are_read_at_some_speed(executable):
    assert 0 < executable.read_bandwidth() < 1e15
    assert 0 < executable.read_bandwidth() < 1e15


def test_a_program_without_matrices_has_none_to_read():
    program = json.loads(json.dumps(LLAMA.program))
    program["nodes"] = [node for node in program["nodes"] if node["kind"] == "embed"]
    program["values"] = {name: program["values"][name] for name in ("x0",)}
    program["outputs"], program["caches"] = ["x0"], {}
    made = tensor_ops_cpp.compile_program(json.dumps(program), LLAMA.tensors)
    with pytest.raises(RuntimeError, match="read_bandwidth: the program has no matrices to read"):
        made.read_bandwidth()


def test_a_wrong_step_is_an_error_of_its_own(executable):
    with pytest.raises(ValueError, match=r"^profile: num_tokens must be from 1 to 40, got 41$"):
        executable.profile(41, 1)


def test_after_closing_both_are_errors(executable):
    executable.close()
    with pytest.raises(RuntimeError, match="profile: the executable is closed; compile"):
        executable.profile(1, 1)
    with pytest.raises(RuntimeError, match="read_bandwidth: the executable is closed; compile"):
        executable.read_bandwidth()
