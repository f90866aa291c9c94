"""Nothing relies on the GIL: these run with it as well, and say more in a free-threaded Python."""

import subprocess
import sys
import sysconfig
import threading

import numpy as np
import pytest
from cpp_cases import OP_VARIANTS, OPS, arguments, same_bits

import tensor_ops_cpp as t


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python is not free-threaded"
)
def test_import_leaves_the_gil_off(monkeypatch):
    monkeypatch.delenv("PYTHON_GIL", raising=False)  # which would keep it off
    code = "import sys, tensor_ops_cpp; print(sys._is_gil_enabled())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("shape", [(3, 30), (8, 4096)], ids=["keeps the GIL", "pooled"])
@pytest.mark.parametrize(("op", "kwargs"), OP_VARIANTS)
def test_callers_beside_threads_that_change_settings(op, kwargs, shape, rng, threads):
    given = [arguments(op, shape, np.float32, rng) for _ in range(4)]
    expected = [OPS[op](*g, **kwargs) for g in given]
    wrong = []
    start = threading.Barrier(len(given) + 1)
    done = threading.Event()

    def call(k):
        start.wait()
        results = [OPS[op](*given[k], **kwargs) for _ in range(25)]
        wrong.extend(k for result in results if not same_bits(result, expected[k]))

    def disturb():
        start.wait()
        while not done.is_set():
            t.set_num_threads(1 + t.get_num_threads() % 3)
            t.trim_pool()
            t.pool_info()

    callers = [threading.Thread(target=call, args=[k]) for k in range(len(given))]
    disturber = threading.Thread(target=disturb)
    for thread in (*callers, disturber):
        thread.start()
    for thread in callers:
        thread.join()
    done.set()
    disturber.join()
    assert wrong == []


def test_errors_of_threads_are_their_own(rng):
    """A message is made of the arguments of its own call."""
    found = {}

    def call(dims):
        for _ in range(200):
            with pytest.raises(ValueError, match="shape") as caught:
                t.rms_norm(np.ones((2, dims), np.float32), np.ones(dims + 1, np.float32))
            found.setdefault(dims, set()).add(str(caught.value))

    callers = [threading.Thread(target=call, args=[dims]) for dims in range(3, 9)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert {dims: len(messages) for dims, messages in found.items()} == dict.fromkeys(
        range(3, 9), 1
    )
