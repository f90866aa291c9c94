"""What a backend may do wrong in its answers, each time at its own cost only."""

import shutil
import warnings

import numpy as np
import pytest

import tensor_ops
from tensor_ops import BackendUnavailableError, explain


@pytest.fixture(autouse=True)
def without_our_own(settings):
    settings.write(backend_priority=["python"])


def reason_of(name):
    return tensor_ops.get_backend_info(name)["reason"]


def raising(error):
    def function(*args):
        raise error

    return function


FAILURES = [OSError("lost"), SystemExit("lost"), RecursionError("lost")]


@pytest.mark.parametrize("version", [None, 0, 2, "1", 1.0, np.array([1, 1])], ids=repr)
def test_an_api_version_that_is_not_ours(install, version):
    install("odd", API_VERSION=version, probe=raising(AssertionError("used all the same")))
    with pytest.raises(BackendUnavailableError, match="fake-odd has API_VERSION") as caught:
        tensor_ops.set_default_backend("odd")
    assert "pip install -U tensor-ops fake-odd" in str(caught.value)
    assert tensor_ops.get_backend_info("odd")["display_name"] == "odd"


@pytest.mark.parametrize("answer", [None, {}, True, [], {"reason": "none"}], ids=repr)
def test_a_probe_that_answers_nonsense(install, answer):
    install("odd", probe=lambda: answer)
    assert reason_of("odd").startswith("its probe() failed: ")


@pytest.mark.parametrize("answer", [{"available": False}, {"available": None, "reason": ""}])
def test_a_probe_that_gives_no_reason(install, answer):
    install("odd", probe=lambda: answer)
    assert reason_of("odd") == "its probe() found no usable device"


@pytest.mark.parametrize("answer", [None, [], 3, "facts"], ids=repr)
def test_an_info_that_answers_nonsense(install, answer):
    install("odd", info=lambda: answer)
    facts = tensor_ops.get_backend_info("odd")
    assert facts["available"]
    assert facts["reason"].startswith("its info() failed: ")


def test_an_info_that_lies_about_name_and_availability(install):
    install("odd", info=lambda: {"name": "cuda", "available": False})
    facts = tensor_ops.get_backend_info("odd")
    assert (facts["name"], facts["available"], facts["reason"]) == ("odd", True, None)


@pytest.mark.parametrize("answer", ["", True, False, 0, {}], ids=repr)
def test_a_supports_that_answers_nonsense(install, who, answer):
    install("odd", supports=lambda op, dtype, device: answer)
    tensor_ops.set_default_backend("odd")
    assert who() == "python"
    explanation = explain("silu", np.ones(1, "float32"))
    expected = f"its supports() returned {answer!r}, expected None or a reason"
    assert explanation.steps[0].reason == expected
    assert f"  odd: {expected}" in str(explanation)


@pytest.mark.parametrize("error", FAILURES, ids=repr)
@pytest.mark.parametrize("function", ["probe", "info", "supports"])
def test_a_function_that_raises(install, who, function, error):
    install("odd", **{function: raising(error)})
    kind = type(error).__name__
    if function == "supports":
        tensor_ops.set_default_backend("odd")
        reason = explain("silu", np.ones(1, "float32")).steps[0].reason
    else:
        reason = reason_of("odd")
    assert reason.endswith(f": {kind}: lost")
    assert who() == "python"


@pytest.mark.parametrize("function", ["probe", "supports"])
def test_a_function_that_is_missing(install, who, function):
    module = install("odd")
    delattr(module, function)
    tensor_ops.reload_config()
    with pytest.raises(tensor_ops.BackendError, match=f"AttributeError.*{function}"):
        who(backend="odd")
    assert who() == "python"


def test_attributes_that_fail_when_looked_up(install, who):
    module = install("odd", __getattr__=raising(ImportError("lazy import failed")))
    del module.silu
    tensor_ops.set_default_backend("odd")
    assert who() == "python"
    assert "ImportError: lazy import failed" in explain("silu").steps[0].reason


def test_the_users_interrupt_passes_and_leaves_nothing_behind(install, who):
    module = install("odd", probe=raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        who(backend="odd")
    module.probe = lambda: {"available": True}
    assert who(backend="odd") == "odd"


def test_an_error_in_an_op_is_the_callers(install, who):
    install("odd", silu=raising(OSError("the device is on fire")))
    with pytest.raises(OSError, match="on fire"):
        who(backend="odd")
    assert tensor_ops.is_backend_available("odd")


@pytest.mark.parametrize("name", ["python", "numpy", "cpu", "openmp", "auto"])
def test_a_name_that_has_a_meaning_cannot_be_taken(install, who, name):
    install(name)
    assert name == "python" or name not in tensor_ops.list_backends()
    assert who(backend="python") == "python"
    if name != "cpu":  # which is cpp where that is installed
        assert who(backend="numpy") == "python"


def test_a_name_that_is_known_can_be(install, who):
    install("mps")
    assert who(backend="mps") == "mps"


def test_a_default_that_is_uninstalled_goes_on_until_it_is_changed(install, settings, who):
    install("gone")
    tensor_ops.set_default_backend("gone")
    shutil.rmtree(settings.directory / "fake_gone-1.0.dist-info")
    tensor_ops.reload_config()
    assert who() == "gone"
    tensor_ops.set_default_backend(None)
    with pytest.raises(tensor_ops.ConfigError, match="unknown backend 'gone'"):
        tensor_ops.set_default_backend("gone")


def test_a_warning_of_an_import_is_not_lost_when_warnings_are_errors(install):
    def probe():
        warnings.warn("this probe is deprecated", DeprecationWarning, stacklevel=1)
        return {"available": True}

    install("odd", probe=probe)
    assert "DeprecationWarning: this probe is deprecated" in reason_of("odd")
