"""The preferred backend ``fastest``: chosen by the table of ``tensor-ops tune``."""

import json
import warnings

import numpy as np
import pytest

import tensor_ops
from measured_tables import LARGE, SMALL, both, entry
from tensor_ops import BackendUnavailableError, ConfigError, explain, use_backend
from tensor_ops.config import state
from tensor_ops.dispatch import resolution
from tensor_ops.op import OPS

pytestmark = pytest.mark.usefixtures("measured")


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
    assert function.__module__ != "tensor_ops.dispatch.resolution"


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


# Beside other levels


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
