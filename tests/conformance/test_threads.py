"""Many threads at once, threads inside the backend, and children of processes that used them."""

import inspect
import os
import threading

import numpy as np
import pytest

from calls import as_tuple, bits, choices, draw_arguments
from tensor_ops import backends

pytestmark = pytest.mark.usefixtures("supported")


def run(op, backend, values):
    return [bits(result) for result in as_tuple(op.public(**values, backend=backend))]


def assert_same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_eight_python_threads(op, backend):
    cases = [
        draw_arguments(op, shape, "float32", f"thread {index}")
        for index, shape in enumerate([(1, 64), (3, 4096), (130, 1024), (5, 30)] * 2)
    ]
    alone = [run(op, backend, values) for values in cases]
    together = [None] * len(cases)
    start = threading.Barrier(len(cases))

    def work(index):
        start.wait()
        for _ in range(5):
            together[index] = run(op, backend, cases[index])

    threads = [threading.Thread(target=work, args=[index]) for index in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, wanted in zip(together, alone, strict=True):
        assert_same(got, wanted)


@pytest.mark.parametrize("shape", [(1, 1 << 18), (257, 4096), (3, 66), (100_000, 4)], ids=str)
@pytest.mark.sampled(2, "op", "dtype", "shape")
def test_number_of_threads_leaves_the_bits(op, backend, dtype, shape):
    function = getattr(backends.load(backend).module, op.name)
    if "num_threads" not in inspect.signature(function).parameters:
        return  # it has no threads of its own
    for kwargs in choices(op):
        values = draw_arguments(op, shape, dtype, f"threads {shape}") | kwargs
        one, *others = (as_tuple(function(**values, num_threads=count)) for count in (1, 2, 3))
        for other in others:
            assert_same([bits(each) for each in other], [bits(each) for each in one])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.sampled(2, "op")
def test_fork_after_use(op, backend):
    values = draw_arguments(op, (512, 4096), "float32", "fork")
    wanted = run(op, backend, values)
    child = os.fork()
    if child == 0:
        os._exit(0 if is_right_or_refused(op, backend, values, wanted) else 1)
    assert wait(child, seconds=60) == 0
    assert_same(run(op, backend, values), wanted)


def is_right_or_refused(op, backend, values, wanted):
    """Return whether a forked child gets the same bits, or is told that a fork is the reason."""
    try:
        results = run(op, backend, values)
    except RuntimeError as error:  # of a device whose runtime does not survive a fork
        return "fork" in str(error)
    return all(np.array_equal(a, b) for a, b in zip(results, wanted, strict=True))


def wait(child, seconds):
    """Return the exit status of a child, or kill it and fail."""
    alarm = threading.Timer(seconds, os.kill, [child, 9])
    alarm.start()
    try:
        return os.waitpid(child, 0)[1]
    finally:
        alarm.cancel()
