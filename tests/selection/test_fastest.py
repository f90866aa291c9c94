"""The preferred backend ``fastest``: chosen by the table of ``tensor-ops tune``."""

import json
import os
import threading
import warnings
from textwrap import dedent

import numpy as np
import pytest

import tensor_ops
from tensor_ops import (
    BackendFallbackWarning,
    BackendUnavailableError,
    ConfigError,
    explain,
    resolution,
    state,
    tuning_table,
    use_backend,
)
from tensor_ops.op import OPS
from tensor_ops.tuning_table import Entry, Table

SMALL, LARGE = 10, 1000  # the sizes in the tables below; 100 is the last that goes by the small one


def entry(size, dtype="float32", op="silu", wrong=(), **seconds):
    return Entry(op, dtype, (size,), "2026-11-22", seconds, dict(wrong))


@pytest.fixture
def write(settings):
    """Write a table of these entries, as if it had been measured here."""

    def write(*entries, machine=None, **changes):
        names = {name for each in entries for name in each.seconds}
        facts = {name: tuning_table.backend_facts(name) for name in names}
        path = tuning_table.default_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        machine = machine or tuning_table.machine_facts()
        tuning_table.write(path, Table(machine, facts | changes, entries))
        tensor_ops.reload_config()
        return path

    return write


@pytest.fixture(autouse=True)
def _backends(settings, install):
    for name in ("alpha", "beta", "gamma", "outside"):
        install(name, available=name != "gamma")
    settings.write(backend_priority=["alpha", "beta", "gamma"])
    tensor_ops.reload_config()


@pytest.fixture
def of_size():
    """Return the backend that runs silu on so many elements."""

    def of_size(size, dtype="float32", **options):
        result = tensor_ops.silu(np.ones(size, dtype), **options)
        return result if isinstance(result, str) else "python"

    return of_size


@pytest.fixture(params=["file", "environment", "default", "context", "call"])
def ask(request, settings):
    """Ask for the fastest backend on one level; returns the options of a call."""
    if request.param == "file":
        settings.write(preferred_backend="fastest", backend_priority=["alpha", "beta", "gamma"])
    if request.param == "environment":
        settings.environment(BACKEND="fastest")
    tensor_ops.reload_config()
    if request.param == "default":
        tensor_ops.set_default_backend("fastest")
    if request.param == "context":
        with use_backend("fastest"):
            yield {}
        return
    yield {"backend": "fastest"} if request.param == "call" else {}


def both(**more):
    """Alpha is the fastest for small arrays, beta for large ones."""
    return entry(SMALL, alpha=1, beta=2, **more), entry(LARGE, alpha=4, beta=3, **more)


def test_the_size_decides_on_every_level(write, ask, of_size):
    write(*both())
    sizes = (0, 1, 10, 100, 101, 1000, 10**6)
    expected = ["alpha", "alpha", "alpha", "alpha", "beta", "beta", "beta"]
    for _ in range(2):
        assert [of_size(size, **ask) for size in sizes] == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert explain("silu", np.ones(101, "f"), **ask).mode == "fastest"


def test_arguments_may_be_given_by_name(write):
    write(*both())
    with use_backend("fastest"):
        assert tensor_ops.silu(x=np.ones(10, "f")) == "alpha"
        assert tensor_ops.silu(x=np.ones(101, "f"), out=None) == "beta"


def test_one_backend_for_all_sizes_is_called_without_a_step_between(write):
    write(entry(SMALL, beta=1, alpha=2), entry(LARGE, beta=1, alpha=2))
    with use_backend("fastest"):
        x = np.ones(3, "f")
        assert tensor_ops.silu(x) == "beta"
        function = resolution.function_for(OPS["silu"], state.current(), "float32")
    assert function.__module__ != "tensor_ops.resolution"


def test_op_dtype_and_variants_decide(write, of_size):
    write(entry(SMALL, beta=1, alpha=2), entry(SMALL, "float64", python=1, alpha=2))
    tensor_ops.set_default_backend("fastest")
    assert of_size(3) == "beta"
    assert of_size(3, "float64") == "python"
    # what was not measured goes by the priority
    x = np.ones(3, "f")
    assert explain("gelu", x).times["reason"] == (
        "no times: run 'tensor-ops tune --ops gelu --dtype float32'"
    )
    assert [step.backend for step in explain("gelu", x).steps] == [
        "alpha",
        "beta",
        "gamma",
        "python",
    ]


def test_unavailable_and_unsupported_ones_are_passed_over(write, install, settings, of_size):
    install("half", dtypes=("float16",))
    settings.write(backend_priority=["half", "gamma", "beta", "alpha"])
    write(entry(SMALL, half=1, gamma=2, alpha=3, beta=4))
    tensor_ops.set_default_backend("fastest")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert of_size(3) == "alpha"
    found = explain("silu", np.ones(3, "f"))
    assert [(step.backend, step.reason) for step in found.steps] == [
        ("half", "no float32 on cpu"),
        ("gamma", "no gamma device"),
        ("alpha", None),
    ]


def test_the_rest_of_the_priority_comes_after_what_was_measured(write, of_size):
    write(entry(SMALL, beta=1))
    tensor_ops.set_default_backend("fastest")
    assert of_size(3) == "beta"
    found = explain("rms_norm", np.ones(3, "f"))
    assert found.backend == "python"
    [decision] = [state.current().decision]
    assert decision.candidates == ("alpha", "beta", "gamma", "python")


def test_a_backend_that_was_wrong_is_never_chosen(write, of_size):
    wrong = {"alpha": "its result is out of its bound"}
    write(entry(SMALL, python=1, wrong=wrong), entry(LARGE, beta=2, python=1, wrong=wrong))
    tensor_ops.set_default_backend("fastest")
    assert of_size(3) == "python"
    assert of_size(LARGE) == "python"
    write(entry(SMALL, wrong=wrong))
    assert of_size(3) == "beta"
    step = explain("silu", np.ones(3, "f")).steps[0]
    assert step == ("alpha", "it was measured to be wrong: its result is out of its bound")


def test_a_backend_outside_the_priority_is_not_chosen(write, of_size):
    write(entry(SMALL, outside=1, beta=2, alpha=3))
    tensor_ops.set_default_backend("fastest")
    assert of_size(3) == "beta"
    assert "outside" not in [step.backend for step in explain("silu", np.ones(3, "f")).steps]


def test_a_backend_for_a_kind_of_device_has_the_times_of_the_backend(write, settings, install):
    install("device", probe=lambda: {"available": True, "devices": [], "kind": "gpu"})
    settings.write(backend_priority=["alpha", "device:gpu"])
    write(entry(SMALL, device=1, alpha=2))
    with use_backend("fastest"):
        assert tensor_ops.silu(np.ones(3, "f")) == "device"
        assert explain("silu", np.ones(3, "f")).steps == (("device:gpu", None),)


def test_explain_shows_the_figures_that_decided(write):
    write(entry(SMALL, alpha=67e-6, beta=1.5e-3, python=2.25e-3))
    found = explain("silu", np.ones((2, 5), "f"), backend="fastest")
    assert found.times == {
        "seconds": {"alpha": 67e-6, "beta": 1.5e-3, "python": 2.25e-3},
        "size": 10,
        "date": "2026-11-22",
        "undecided": [],
        "reason": None,
    }
    assert str(found).splitlines() == [
        "silu for float32 on cpu: alpha runs",
        "  decided by backend= on the call (fastest)",
        "  alpha 67.0 us, beta 1.50 ms, python 2.25 ms, measured 2026-11-22 at 10 elements",
        "  alpha: chosen",
    ]
    json.dumps(found.as_dict())
    assert "none are given" in explain("silu", backend="fastest").times["reason"]
    assert explain("silu", np.ones(3, "f")).times is None


class OnDevice:
    """An array on a device that speaks DLPack."""

    dtype = "float32"
    shape = (10,)

    def __dlpack__(self, **kwargs):
        raise AssertionError("looked at")

    def __dlpack_device__(self):
        return (2, 0)


def test_an_array_on_a_device_stays_there(write, install, settings):
    module = install(
        "there", supports=lambda op, dtype, device: None if device == "cuda:0" else "not there"
    )
    settings.write(backend_priority=["alpha", "there"])
    write(entry(SMALL, alpha=1))
    module.silu = lambda x, *, out=None: "there"
    with use_backend("fastest"):
        assert tensor_ops.silu(OnDevice()) == "there"
        found = explain("silu", OnDevice())
    assert found.backend == "there"
    assert "stays on its device" in found.times["reason"]


def test_what_computes_in_place_has_the_fastest_over_all_sizes(write, install, settings):
    install("device", CAPABILITIES={"copies_host_arrays": True})
    settings.write(backend_priority=["device", "alpha", "beta"])
    write(entry(SMALL, device=1, alpha=2, beta=1e3), entry(LARGE, device=1, alpha=100, beta=90))
    table = state.table_for("fastest", "a test")
    function = resolution.Route(OPS["silu"], in_place=True).function(table, "f", "float32")
    assert function(None) == "alpha"


# Without a table, or with one that cannot be used


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
    assert warning.filename == __file__
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


# Beside other level


def test_a_force_holds_over_it(write, settings, of_size):
    write(entry(SMALL, alpha=1, beta=2))
    settings.write(force_backend="beta")
    tensor_ops.reload_config()
    assert of_size(3, backend="fastest") == "beta"
    with use_backend("fastest"):
        assert of_size(3) == "beta"
    tensor_ops.set_default_backend("fastest")
    assert of_size(3) == "beta"
    found = explain("silu", np.ones(3, "f"), backend="fastest")
    assert (found.mode, found.overridden, found.times) == ("force", (), None)


def test_it_cannot_be_forced_or_be_a_place_in_the_priority(settings):
    for content in ({"force_backend": "fastest"}, {"backend_priority": ["fastest"]}):
        settings.write(**content)
        with pytest.raises(ConfigError, match="'fastest'"):
            tensor_ops.reload_config()
    settings.write()
    settings.environment(FORCE_BACKEND="fastest")
    with pytest.raises(ConfigError, match="'fastest' is not a backend"):
        tensor_ops.reload_config()


def test_it_is_no_backend():
    with pytest.raises(ConfigError, match="'fastest' is not a backend"):
        tensor_ops.get_backend_info("fastest")
    with pytest.raises(ConfigError, match="did you mean 'fastest'"):
        tensor_ops.silu(np.ones(3), backend="fastes")


def test_get_backend_is_the_first_of_the_priority(write):
    write(entry(SMALL, beta=1, alpha=2))
    with use_backend("fastest"):
        assert tensor_ops.get_backend() == "alpha"


def test_a_named_backend_within_it_is_strict(write):
    write(*both())
    with use_backend("fastest"), pytest.raises(BackendUnavailableError):
        tensor_ops.silu(np.ones(3), backend="gamma")


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


# Processes


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


def test_the_table_of_the_command_is_the_one_that_is_read(processes):
    processes.environment(BACKEND="fastest", BACKEND_PRIORITY="python")
    words = ["tune", "--ops=silu", "--shape=1x8", "--seconds=0.001"]
    done = processes.run(f"from tensor_ops.__main__ import main; main({words})")
    assert (done.returncode, done.stderr) == (0, "")
    code = """
        import numpy, tensor_ops
        found = tensor_ops.explain("silu", numpy.ones(8, "f"))
        print(found.decided_by, found.mode, found.backend)
        print(*found.times["seconds"], found.times["size"])
    """
    expected = ["TENSOR_OPS_BACKEND fastest python", "python 8"]
    assert processes.output(dedent(code)).splitlines() == expected


def test_who_does_not_ask_for_it_does_not_import_it(processes):
    processes.write(backend_priority=["python"])
    code = "import sys, numpy, tensor_ops; tensor_ops.silu(numpy.ones(3)); "
    code += "print('tensor_ops.tuning_table' in sys.modules)"
    assert processes.output(code) == "False"
    processes.environment(BACKEND="fastest")
    assert processes.output(code) == "True"
