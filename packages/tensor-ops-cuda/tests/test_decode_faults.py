"""Faults around decode programs: memory, callbacks, forks, devices and their failures."""

import ctypes
import gc
import json
import os
import threading

import numpy as np
import pytest
from random_llama import Llama, answers
from wait_names import WAITS

import tensor_ops_cuda

TINY = Llama("bf16", layers=1, hidden=64, heads=2, kv_heads=1, intermediate=64, vocabulary=90)
PROGRAM, TENSORS = TINY.program()
TEXT = PROGRAM.to_json()
# Whose blocks have several rounds, so that steps in a row go wrong without one of their waits.
LARGER = Llama("q4_0", layers=1, hidden=640, intermediate=2176).program()
LARGER = (LARGER[0].to_json(), LARGER[1])
PROMPTS = [[5, 6, 7]]


def compiled(**options):
    return tensor_ops_cuda.compile_program(TEXT, TENSORS, **options)


@pytest.fixture
def taken(runtime):
    """A function that says how many bytes of the device are in use."""

    def count():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        gc.collect()
        runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    runtime.cudaDeviceSynchronize()
    yield count
    runtime.set_memory()


def needed():
    """Return the bytes of the device that the program takes."""
    sizes = tensor_ops_cuda.program_memory(TEXT)
    return sum(size for name, size in sizes.items() if name != "arrays")


def test_closing_gives_all_memory_back(taken):
    before = taken()
    made = compiled()
    assert taken() >= before + needed()
    made.close()
    assert taken() == before


def test_too_little_memory_is_said_before_any_is_taken(taken, runtime):
    before = taken()
    runtime.set_memory(device=before + needed() - 1)
    calls = []
    with pytest.raises(MemoryError) as caught:
        compiled(progress=lambda *call: calls.append(call))
    expected = f"the program needs {needed()} bytes of cuda:0 (weights "
    assert expected in str(caught.value)
    assert f"and {needed() - 1} of " in str(caught.value)
    assert (taken(), calls) == (before, [])
    runtime.set_memory(device=before + needed())
    compiled().close()
    assert tensor_ops_cuda.program_memory_limit() == needed()


def test_pinned_memory_that_is_out_is_a_memory_error(taken, runtime):
    before = taken()
    runtime.set_memory(pinned=0)
    with pytest.raises(MemoryError, match="cudaHostAlloc failed"):
        compiled()
    assert taken() == before


def test_memory_that_others_take_meanwhile_is_a_memory_error(taken, runtime):
    """The driver refuses what was free a moment ago."""
    before = taken()

    def take(done, size):
        runtime.set_memory(device=before)

    compiled(progress=take).close()  # all was taken before the first call
    runtime.set_memory()
    assert taken() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_an_exception_of_progress_gives_the_memory_back(taken, runtime, error):
    before, calls = taken(), []

    def progress(done, size):
        calls.append(done / size)
        if len(calls) == 3:
            raise error("enough")

    with pytest.raises(error, match="enough"):
        compiled(progress=progress)
    assert 0 < calls[-1] < 1
    runtime.cudaDeviceSynchronize()
    assert taken() == before
    compiled().close()


INTERRUPTED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import numpy as np, tensor_ops_cuda
from test_decode_faults import TEXT, TENSORS
def progress(done, size):
    os.kill(os.getpid(), signal.SIGINT)
    assert calls.append(done) is None
calls = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
try:
    tensor_ops_cuda.compile_program(TEXT, TENSORS, progress=progress)
except KeyboardInterrupt:
    print("interrupted after", len(calls))
    tensor_ops_cuda.compile_program(TEXT, TENSORS).close()
"""


def test_ctrl_c_ends_the_upload_of_weights(python, runtime):
    code = INTERRUPTED.format(folder=os.path.dirname(__file__))
    assert python(code) in {"interrupted after 0\n", "interrupted after 1\n"}


FORKED = """
import os, sys
sys.path.insert(0, {folder!r})
import numpy as np, tensor_ops_cuda
from random_llama import answers
from test_decode_faults import PROMPTS, TEXT, TENSORS
made = tensor_ops_cuda.compile_program(TEXT, TENSORS)
before = answers(made, PROMPTS)
child = os.fork()
if child == 0:
    for call in (lambda: made.run(1, 0), lambda: made.run_steps(1, 1, "next", [[]]),
                 lambda: made.first_nan(1, 0, 0), lambda: made.profile(1, 0),
                 lambda: tensor_ops_cuda.compile_program(TEXT, TENSORS),
                 lambda: tensor_ops_cuda.program_memory(TEXT)):
        try:
            call()
        except RuntimeError as error:
            assert "process was forked" in str(error)
        else:
            os._exit(1)
    assert "forked" in tensor_ops_cuda.supports_program(TEXT)
    made.close()
    made.close()
    del made
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
after = answers(made, PROMPTS)
assert [each[0] for each in before] == [each[0] for each in after]
made.close()
print("done")
"""


def test_a_child_has_no_executable_and_the_parent_keeps_its_own(python, runtime):
    assert python(FORKED.format(folder=os.path.dirname(__file__))) == "done\n"


def test_close_waits_for_the_steps_of_other_threads(device):
    made, found, started = compiled(num_workers=1), [], threading.Event()

    def work():
        started.set()
        try:
            for _ in range(1000):
                answers(made, PROMPTS)
        except RuntimeError as error:
            found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    made.close()
    thread.join()
    assert "the executable is closed; compile the program again" in found[0]
    for call in (
        lambda: made.run(1, 0),
        lambda: made.profile(1, 0),
        lambda: made.first_nan(1, 0, 0),
    ):
        with pytest.raises(RuntimeError, match="the executable is closed"):
            call()


def test_an_executable_that_is_dropped_gives_its_memory_back(taken, runtime):
    before = taken()
    made = compiled()
    del made
    gc.collect()
    runtime.cudaDeviceSynchronize()
    assert taken() == before


def test_blocks_that_wait_in_vain_end_the_executable(taken, runtime):
    before = taken()
    made = compiled(num_workers=3)
    right = answers(made, PROMPTS)
    runtime.emulatedLeaveOut(1 + WAITS.index("kArrival"))
    try:
        with pytest.raises(RuntimeError) as caught:
            answers(made, PROMPTS)
    finally:
        runtime.emulatedLeaveOut(0)
    message = str(caught.value)
    assert message.startswith(
        "run: blocks waited for others for 20 s: block 0 after node 'x' (embed)"
    )
    assert "in step 0, with weights on their way up to panel" in message
    with pytest.raises(RuntimeError, match="run: an earlier step failed: blocks waited for others"):
        made.run(1, 0)
    made.close()
    with pytest.raises(RuntimeError, match="the executable is closed"):
        made.run(1, 0)
    assert taken() == before
    again = compiled(num_workers=3)
    assert answers(again, PROMPTS)[0][0] == right[0][0]
    again.close()


def test_a_kernel_that_fails_ends_the_executable(runtime):
    """No call of CUDA succeeds after that, and closing is no error."""
    made = tensor_ops_cuda.compile_program(*LARGER, num_workers=3)
    other = compiled()
    runtime.emulatedLeaveOut(1 + WAITS.index("kTokensChosen"))
    try:
        with pytest.raises(RuntimeError, match=r"run_steps: .* cudaErrorLaunchFailure, block"):
            answers(made, [[5, 6], [1, 2]], num_steps=2)
        with pytest.raises(RuntimeError, match="run: an earlier step failed: cudaStreamSynchr"):
            made.run(1, 0)
        with pytest.raises(RuntimeError, match=r"cuda.* failed: cudaErrorLaunchFailure"):
            other.run(1, 0)
        made.close()
        other.close()
    finally:
        runtime.emulatedLeaveOut(0)
        runtime.emulatedForgetFailure()


SECOND = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np, tensor_ops_cuda
from emulated import Runtime
from random_llama import answers
from test_decode_faults import PROMPTS, TEXT, TENSORS
taken = Runtime().taken
before = [taken(0), taken(1)]
made = tensor_ops_cuda.compile_program(TEXT, TENSORS)
assert taken(0) == before[0] and taken(1) > before[1]
((tokens, _),) = answers(made, PROMPTS)
made.profile(1, 1)
made.first_nan(1, 1, 0)
made.close()
assert taken(1) == before[1]
print(tokens)
"""


def test_a_program_runs_on_the_device_of_host_arrays(python, runtime):
    settings = {"TENSOR_OPS_EMULATED_DEVICES": "2", "TENSOR_OPS_CUDA_DEVICE": "1"}
    found = python(SECOND.format(folder=os.path.dirname(__file__)), **settings)
    made = compiled()
    assert json.loads(found) == answers(made, PROMPTS)[0][0]
    made.close()


OLD = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np, tensor_ops, tensor_ops_cuda
from test_decode_faults import TEXT, TENSORS
from tensor_ops_decode import PersistentKernel
print(tensor_ops_cuda.supports_program(TEXT))
try:
    tensor_ops_cuda.compile_program(TEXT, TENSORS)
except RuntimeError as error:
    print(error)
print(tensor_ops_cuda.silu(np.zeros(3, np.float32)))
try:
    PersistentKernel(backend="cuda").compile()
except ValueError as error:
    print(error)
"""


def test_an_old_device_runs_ops_and_no_programs(python, runtime):
    code = OLD.format(folder=os.path.dirname(__file__))
    reason, error, ones, choice = python(code, TENSOR_OPS_EMULATED_CAPABILITY="7.5").splitlines()
    assert reason.startswith("programs need compute capability 8.0, for asynchronous copies")
    assert reason.endswith("cuda:0 has 7.5")
    assert error == reason
    assert ones == "[0. 0. 0.]"
    assert reason in choice


SMALL = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np, tensor_ops_cuda
from random_llama import Llama, answers
from test_decode_faults import KINDS, long_answers
print(tensor_ops_cuda.info()["max_shared_memory"] // 1024)
print(long_answers().hex())
"""
KINDS = ("q8_0", "q4_0", "bf16")


def long_answers():
    """Return the bits of logits after a prompt, for all types of weights."""
    found = b""
    for kind in KINDS:
        program, tensors = Llama(kind, layers=1, hidden=320, intermediate=2176).program()
        made = tensor_ops_cuda.compile_program(program.to_json(), tensors, num_workers=2)
        ((_, logits),) = answers(made, PROMPTS, num_steps=2)
        found += logits.tobytes()
        made.close()
    return found


def test_a_device_of_less_shared_memory_has_the_same_bits(python, runtime):
    code = SMALL.format(folder=os.path.dirname(__file__))
    found = python(code, TENSOR_OPS_EMULATED_CAPABILITY="8.6").split()
    assert found == ["99", long_answers().hex()]


def test_more_end_tokens_than_the_kernel_takes(device):
    """Steps then run one by one, with the same tokens."""
    made = compiled()
    ((tokens, _),) = answers(made, PROMPTS, num_steps=1)
    arrays = made.arrays

    def after(ends):
        arrays["tokens"][0], arrays["positions"][0] = tokens[0], len(PROMPTS[0])
        return made.run_steps(1, 9, "next", [ends])[:, 0].tolist()

    usual = after([])
    last = next(token for token in usual[1:] if token != usual[0])
    others = [-1 - number for number in range(1100)]
    assert after(others) == usual
    for ends in (others[:1023], others[:1024], others):
        assert after([*ends, last]) == usual[: usual.index(last) + 1]
    made.close()


def test_weights_may_lie_at_any_address(device):
    made = compiled()
    right = answers(made, PROMPTS)[0][1]
    made.close()
    tensors = {}
    for name, array in TENSORS.items():
        data = np.frombuffer(b"\0" + array.tobytes() + b"\0", np.uint8)
        tensors[name] = data[1 : 1 + array.nbytes]
        assert tensors[name].ctypes.data % 2
    moved = tensor_ops_cuda.compile_program(TEXT, tensors)
    assert answers(moved, PROMPTS)[0][1].tobytes() == right.tobytes()
    moved.close()
