"""The table that ``fastest`` goes by: read once, by all threads, and told where it is no use."""

import inspect
import os
import threading
import warnings

import numpy as np
import pytest

import tensor_ops
from measured_tables import LARGE, SMALL, both
from tensor_ops import BackendFallbackWarning, explain
from tensor_ops.config import tuning_table

pytestmark = pytest.mark.usefixtures("measured")


def test_without_a_table_it_is_auto_and_says_so_only_when_asked(ask, of_size):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert of_size(3, **ask) == "alpha"
    found = explain("silu", np.ones(3, "f"), **ask)
    assert found.backend == "alpha"
    assert "  no table: run 'tensor-ops tune'" in str(found).splitlines()


@pytest.mark.parametrize("how", ["corrupt", "machine", "backend", "writable"])
def test_a_table_that_cannot_be_used_is_told_once(how, write, ask, of_size):
    machine = tuning_table.machine_facts()
    cpu, changes = machine["cpu"], {}
    if how == "machine":
        machine |= {"cpu": "another"}
    if how == "backend":
        changes["alpha"] = tuning_table.backend_facts("alpha") | {"driver": "550"}
    path = write(*both(), machine=machine, **changes)
    if how == "corrupt":
        path.write_text("{")
    if how == "writable":
        path.chmod(0o666)
    says = {
        "corrupt": "is not a table of 'tensor-ops tune'",
        "machine": f"the table does not fit: cpu was 'another' and is {cpu!r}",
        "backend": "the table does not fit: backend 'alpha': driver was '550' and is None",
        "writable": "others can write it",
    }[how]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert of_size(1000, **ask) == "alpha"
        assert of_size(1000, "float64", **ask) == "python"
        assert of_size(1000, backend="fastest") == "alpha"
    [warning] = caught
    assert warning.category is BackendFallbackWarning
    text = str(warning.message)
    assert text.startswith("the times that 'fastest', asked for by ")
    assert says in text
    assert text.endswith("run 'tensor-ops tune' again. Running on 'alpha' instead")
    assert warning.filename == inspect.getfile(of_size)  # the caller
    for _ in range(2):
        found = explain("silu", np.ones(3, "f"), **ask)
        assert says in found.times["reason"]
        assert found.times["reason"] in str(found)


def test_where_the_warning_is_an_error_every_call_raises_it(write, of_size):
    write(*both()).write_text("{")
    tensor_ops.set_default_backend("fastest")
    with warnings.catch_warnings():
        warnings.simplefilter("error", BackendFallbackWarning)
        for _ in range(2):
            with pytest.raises(BackendFallbackWarning):
                of_size(3)
    with pytest.warns(BackendFallbackWarning):
        assert of_size(3) == "alpha"


def test_a_table_is_read_once_and_again_with_reload_config(write, of_size, monkeypatch):
    path = write(*both())
    reads, read = [], tuning_table.read
    monkeypatch.setattr(tuning_table, "read", lambda path: reads.append(path) or read(path))
    tensor_ops.set_default_backend("fastest")
    for size in (SMALL, LARGE):
        of_size(size)
        of_size(size, "float64")
        of_size(size, backend="fastest")
        explain("silu", np.ones(3, "f"))
    tensor_ops.set_default_backend(None)
    tensor_ops.set_default_backend("fastest")
    assert of_size(LARGE) == "beta"
    assert len(reads) == 1
    path.unlink()
    assert of_size(LARGE) == "beta"
    tensor_ops.reload_config()
    assert of_size(LARGE) == "alpha"
    assert len(reads) == 2


def test_nobody_else_reads_the_table(write, of_size, monkeypatch):
    write(*both()).write_text("{")

    def refuse(path):
        raise AssertionError("read")

    monkeypatch.setattr(tuning_table, "read", refuse)
    assert of_size(LARGE) == "alpha"
    assert of_size(LARGE, backend="auto") == "alpha"
    assert explain("silu", np.ones(3, "f")).times is None


def test_threads_that_make_the_first_call_together(write, of_size, monkeypatch):
    write(*both())
    reads, read = [], tuning_table.read
    monkeypatch.setattr(tuning_table, "read", lambda path: reads.append(path) or read(path))
    tensor_ops.set_default_backend("fastest")
    start, found = threading.Barrier(8), []

    def work():
        start.wait()
        found.append((of_size(SMALL), of_size(LARGE)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [("alpha", "beta")] * 8
    assert len(reads) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork()")
def test_a_forked_child_goes_by_the_same_table(write, settings, of_size):
    path = write(*both())
    tensor_ops.set_default_backend("fastest")
    assert of_size(LARGE) == "beta"
    path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            if [of_size(SMALL), of_size(LARGE)] == ["alpha", "beta"]:
                tensor_ops.reload_config()
                status = 0 if of_size(LARGE) == "alpha" else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
