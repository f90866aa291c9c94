"""The CAPABILITIES that a backend declares, and their effect on tensor_ops."""

import numpy as np
import pytest

import tensor_ops
from tensor_ops import backends
from tensor_ops.backends.contract import Capabilities, capabilities_of
from tensor_ops.extension import OPS, Route, function_of


def test_a_backend_that_declares_nothing_has_the_defaults(install, who):
    install("plain")
    assert backends.load("plain").capabilities == Capabilities(False, False, (), False)
    assert who(backend="plain") == "plain"


def test_what_is_declared_is_one_frozen_record(install):
    install("able", CAPABILITIES={"devices": ["gpu", "cpu"], "runs_programs": True})
    found = backends.load("able").capabilities
    assert found == Capabilities(devices=("gpu", "cpu"), runs_programs=True)
    with pytest.raises(AttributeError):
        found.runs_programs = False


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (["devices"], "CAPABILITIES must be a mapping, got list"),
        (
            {"exchange_arrays": True},
            "CAPABILITIES has the unknown key 'exchange_arrays'; did you mean 'exchanges_arrays'? "
            "expected exchanges_arrays, copies_host_arrays, devices, runs_programs",
        ),
        (
            {"copies_host_arrays": "yes"},
            "CAPABILITIES['copies_host_arrays'] must be True or False, got 'yes'",
        ),
        (
            {"devices": "gpu"},
            "CAPABILITIES['devices'] must be a list of gpu, cpu, accelerator, got 'gpu'",
        ),
        (
            {"devices": ["tpu"]},
            "CAPABILITIES['devices'] must be a list of gpu, cpu, accelerator, got ['tpu']",
        ),
    ],
)
def test_a_wrong_declaration_disables_the_backend_only(declared, says, install, who):
    install("odd", CAPABILITIES=declared)
    reason = tensor_ops.get_backend_info("odd")["reason"]
    assert reason == f"what it declares is wrong: {says}"
    assert backends.load("odd").is_broken
    assert who() == "python" or tensor_ops.is_backend_available(who())


def test_its_only_kind_of_device_is_the_one_that_it_runs_on(install, who):
    install("one", CAPABILITIES={"devices": ["gpu"]})
    assert who(backend="one:gpu") == "one"
    with pytest.raises(tensor_ops.BackendUnavailableError, match="its device is gpu, not cpu"):
        who(backend="one:cpu")


def test_arrays_that_stay_are_not_copied_unless_asked_for(install, settings):
    module = install("copying", CAPABILITIES={"copies_host_arrays": True})
    settings.write(backend_priority=["copying", "python"])
    tensor_ops.reload_config()
    route, dtype = Route(OPS["silu"], in_place=True), np.dtype("f")
    assert function_of(route, dtype, "float32") is not module.silu
    assert tensor_ops.silu(np.ones(3, "f")) == "copying"
    with tensor_ops.use_backend("copying"):
        assert function_of(route, dtype, "float32") is module.silu


def test_arrays_of_other_libraries_go_to_who_takes_them(install, settings):
    install("narrow")
    module = install("wide", CAPABILITIES={"exchanges_arrays": True})
    route = Route(OPS["silu"], exchanges_arrays=True)
    with tensor_ops.use_backend("narrow"):
        assert function_of(route, "a dtype", "float32") is None
    with tensor_ops.use_backend("wide"):
        assert function_of(route, "a dtype", "float32") is module.silu


def test_the_record_is_made_of_any_mapping():
    assert capabilities_of({}) == Capabilities()
    assert capabilities_of({"devices": ("accelerator",)}).devices == ("accelerator",)
