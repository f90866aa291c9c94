"""Mistakes that a backend may make in its answers, each time at its own cost only."""

import json
import shutil
import warnings

import numpy as np
import pytest

import tensor_ops
from tensor_ops import (
    BackendFallbackWarning,
    BackendUnavailableError,
    ConfigError,
    backends,
    explain,
)


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
    assert "install versions of both that go together" in str(caught.value)
    assert tensor_ops.get_backend_info("odd")["display_name"] == "odd"


@pytest.mark.parametrize("name", ["odd:thing", "opencl:gpu", "odd:"])
def test_a_name_that_reads_as_a_kind_of_device(install, name, capsys):
    install("odd")
    install(name)
    assert name not in tensor_ops.list_backends(verbose=True)
    assert f"{name} " not in capsys.readouterr().out
    with pytest.raises(ConfigError) as caught:
        tensor_ops.is_backend_available(name.replace("opencl", "odd").replace("gpu", "g"))
    assert repr(name) not in str(caught.value).partition(";")[2]


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


@pytest.mark.parametrize("fact", [{"max_memory": "8 GiB"}, {"version": b"1"}], ids=repr)
def test_an_info_with_facts_of_wrong_types(install, fact):
    install("odd", info=lambda: {"device": "a chip", **fact})
    facts = tensor_ops.get_backend_info("odd")
    assert facts["reason"].startswith("its info() failed: TypeError: ")
    assert facts["available"]
    json.dumps(facts)


def test_an_info_that_lies_about_name_and_availability(install):
    install("odd", info=lambda: {"name": "cuda", "available": False})
    facts = tensor_ops.get_backend_info("odd")
    assert (facts["name"], facts["available"], facts["reason"]) == ("odd", True, None)


@pytest.mark.parametrize("answer", ["", True, False, 0, {}], ids=repr)
def test_a_supports_that_answers_nonsense(install, who, answer):
    install("odd", supports=lambda op, dtype, device: answer)
    tensor_ops.set_default_backend("odd")
    with pytest.warns(BackendFallbackWarning, match=r"silu: backend 'odd': its supports\(\)"):
        assert who() == "python"
    assert who() == "python"  # the warning comes once
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
        with pytest.warns(BackendFallbackWarning, match=f"'odd': it failed .*{kind}: lost"):
            assert who() == "python"
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
    with pytest.warns(BackendFallbackWarning, match="lazy import failed"):
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


def test_a_default_that_is_uninstalled_is_missing_in_a_forked_child(install, settings, who):
    install("gone")
    tensor_ops.set_default_backend("gone")
    shutil.rmtree(settings.directory / "fake_gone-1.0.dist-info")
    tensor_ops.reload_config()
    backends.probe_again()  # as in the child
    tensor_ops.reload_config()
    with pytest.warns(BackendFallbackWarning, match="is unavailable: it has been uninstalled"):
        assert who() == "python"


def test_a_warning_of_an_import_is_not_lost_when_warnings_are_errors(install):
    def probe():
        warnings.warn("this probe is deprecated", DeprecationWarning, stacklevel=1)
        return {"available": True}

    install("odd", probe=probe)
    assert "DeprecationWarning: this probe is deprecated" in reason_of("odd")


def test_a_wrong_setting_of_a_backend_is_an_error_of_the_configuration(install, settings, who):
    wrong = "ODD_DEVICE='gup' fits no device; there are 0 = gpu"
    answer = {"available": False, "reason": wrong, "wrong_setting": wrong}
    install("odd", probe=lambda: answer)
    settings.write(backend_priority=["odd", "python"])
    tensor_ops.reload_config()
    for attempt in (who, tensor_ops.get_backend, lambda: who(backend="odd")):
        with pytest.raises(ConfigError, match="backend 'odd': ODD_DEVICE='gup' fits no device"):
            attempt()
    assert reason_of("odd") == wrong
    assert tensor_ops.get_available_backends() == ["python"]
    settings.environment(FORCE_BACKEND="odd")
    with pytest.raises(ConfigError, match="ODD_DEVICE"):
        tensor_ops.reload_config()


def test_a_wrong_setting_counts_where_there_is_a_device_too(install, settings, who):
    install("odd", probe=lambda: {"available": True, "wrong_setting": "ODD_MODE=7 is no mode"})
    for attempt in (lambda: who(backend="odd"), lambda: explain("silu", backend="odd")):
        with pytest.raises(ConfigError, match="backend 'odd': ODD_MODE=7 is no mode"):
            attempt()
    assert reason_of("odd") == "ODD_MODE=7 is no mode"
    assert not tensor_ops.is_backend_available("odd")


@pytest.mark.parametrize("wrong", [None, "", False])
def test_no_wrong_setting(install, who, wrong):
    install("odd", probe=lambda: {"available": True, "wrong_setting": wrong})
    assert who(backend="odd") == "odd"
    install("gone", probe=lambda: {"available": False, "reason": "none", "wrong_setting": wrong})
    with pytest.raises(BackendUnavailableError, match="none"):
        who(backend="gone")


@pytest.mark.parametrize("kind", ["gpu", "cpu", None])
def test_the_kind_of_device_can_be_demanded(install, settings, who, kind):
    install("odd", probe=lambda: {"available": True, "kind": kind})
    if kind == "gpu":
        assert who(backend="odd:gpu") == "odd"
        assert explain("silu", backend="odd:gpu").steps[0].backend == "odd:gpu"
        settings.write(force_backend="odd:gpu")
        tensor_ops.reload_config()
        assert tensor_ops.get_backend() == "odd"
        return
    given = kind or "of a kind that it does not tell"
    expected = f"backend 'odd:gpu' .* is unavailable: its device is {given}, not gpu"
    with pytest.raises(BackendUnavailableError, match=expected):
        who(backend="odd:gpu")
    settings.environment(FORCE_BACKEND="odd:gpu")
    with pytest.raises(BackendUnavailableError, match=expected):
        tensor_ops.reload_config()
    settings.environment(FORCE_BACKEND=None, BACKEND="odd:gpu", BACKEND_PRIORITY="python")
    tensor_ops.reload_config()
    with pytest.warns(BackendFallbackWarning, match=f"its device is {given}, not gpu"):
        assert who() == "python"


def test_a_kind_of_device_that_is_missing_is_not_available(install, settings):
    install("odd", probe=lambda: {"available": True, "kind": "cpu"})
    for priority, expected in (
        (["odd:gpu", "python"], ["python"]),
        (["odd:gpu", "python", "odd"], ["python", "odd"]),
        (["odd:cpu", "python", "odd"], ["odd", "python"]),
    ):
        settings.write(backend_priority=priority)
        tensor_ops.reload_config()
        assert tensor_ops.get_available_backends(runs_programs=False) == expected
        assert tensor_ops.get_backend() == expected[0]


def test_a_preferred_kind_of_device_is_the_first_that_is_available(settings, monkeypatch):
    settings.write(preferred_backend="opencl:cpu")
    tensor_ops.reload_config()
    python, known = backends.load("python"), backends.loaded
    monkeypatch.setitem(known, "cuda", backends.Backend("cuda", None, "not here"))
    for name in ("opencl", "cpp"):
        monkeypatch.setitem(known, name, python._replace(name=name))
    assert tensor_ops.get_backend() == "opencl"
    assert tensor_ops.get_available_backends() == ["opencl", "cpp", "python"]


def test_a_reload_asks_for_the_device_again(install, settings, who):
    """A setting of the backend's own may have chosen another device, or none."""
    probed = {"available": True, "kind": "gpu"}
    install("odd", probe=lambda: probed)
    settings.write(force_backend="odd:gpu")
    tensor_ops.reload_config()
    assert who() == "odd"

    probed = {"available": True, "kind": "cpu"}
    with pytest.raises(BackendUnavailableError, match="its device is cpu, not gpu"):
        tensor_ops.reload_config()
    with pytest.raises(BackendUnavailableError, match="its device is cpu, not gpu"):
        who()

    settings.write(backend_priority=["odd"])
    tensor_ops.reload_config()
    assert who() == "odd"
    probed = {"available": False, "reason": "none", "wrong_setting": "ODD=1 fits no device"}
    tensor_ops.reload_config()
    for ask in (who, tensor_ops.get_backend):
        with pytest.raises(ConfigError, match="ODD=1 fits no device"):
            ask()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("odd:gup", "unknown kind of device 'gup' in 'odd:gup'; did you mean 'gpu'"),
        ("odd:", "unknown kind of device ''"),
        ("od:gpu", "unknown backend 'od'; did you mean 'odd'"),
        ("auto:gpu", "'auto' is not a backend"),
    ],
)
def test_a_kind_of_device_that_is_misspelt(install, who, name, says):
    install("odd")
    with pytest.raises(ConfigError, match=says):
        who(backend=name)


def test_numbers_without_a_meaning_are_zero(install):
    install("odd")
    for name in ("odd", "python", "mps"):
        facts = tensor_ops.get_backend_info(name)
        assert facts["max_memory"] == facts["max_shared_memory"] == 0
        assert facts["compute_capability"] // 10 == 0
    assert list(range(tensor_ops.get_backend_info("mps").get("device_count", 1))) == []
