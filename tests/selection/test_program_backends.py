"""Which backend runs a program: the same levels as for ops, and the reason against each other."""

import contextlib
import functools
import pickle
import warnings

import pytest

import tensor_ops
from tensor_ops import BackendFallbackWarning, PersistentKernel, backends
from tensor_ops.backends import names
from tensor_ops_decode import NoExecutorError, reference


@pytest.fixture
def runner(install):
    """Install a backend that runs programs as the reference does."""

    def runner(name, refuses=None, **attributes):
        module = {
            "supports_program": lambda program: refuses,
            "compile_program": reference.compile_program,
            "CAPABILITIES": {"runs_programs": True},
        }
        return install(name, **{**module, **attributes})

    return runner


def compiled(**arguments):
    kernel = PersistentKernel(**arguments)
    kernel.compile()
    return kernel


def test_a_backend_without_an_executor_is_passed_over(install):
    install("plain")
    tensor_ops.set_default_backend("python")
    with pytest.raises(NoExecutorError, match="plain: it computes single ops and runs no programs"):
        PersistentKernel(backend="plain")


@pytest.mark.parametrize("name", ["opencl", "opencl:gpu", "torch"])
def test_no_package_is_recommended_that_would_not_help(name, monkeypatch, settings):
    monkeypatch.setattr(backends, "installed_points", functools.cache(dict))  # nothing is installed
    with pytest.raises(NoExecutorError) as raised:
        PersistentKernel(backend=name)
    assert str(raised.value) == (
        f"no backend can run the program: {name}: it computes single ops and runs no programs; "
        "tensor_ops.get_available_backends() lists those that do"
    )


@pytest.mark.parametrize("name", ["cpp", "cuda"])
def test_a_package_is_recommended_that_would_help(name, monkeypatch, settings):
    monkeypatch.setattr(backends, "installed_points", functools.cache(dict))
    with pytest.raises(NoExecutorError, match=rf"pip install \./packages/tensor-ops-{name}$"):
        PersistentKernel(backend=name)


@pytest.mark.parametrize("name", [name for name, known in names.KNOWN.items() if known.served_by])
@pytest.mark.parametrize("installed", [True, False])
def test_a_name_without_a_backend_of_its_own_has_the_reason_of_its_information(
    name, installed, monkeypatch, settings
):
    if not installed:
        monkeypatch.setattr(backends, "installed_points", functools.cache(dict))
    with pytest.raises(NoExecutorError) as raised:
        PersistentKernel(backend=name)
    reason = tensor_ops.get_backend_info(name)["reason"]
    assert str(raised.value) == f"no backend can run the program: {name}: {reason}"


def test_no_device_is_missed_where_it_would_not_help(install):
    install("plain", available=False)
    with pytest.raises(NoExecutorError, match="plain: it computes single ops and runs no programs"):
        PersistentKernel(backend="plain")


def test_a_broken_backend_that_runs_no_programs_is_not_warned_of(install, settings):
    def fail():
        raise OSError("no driver")

    install("plain", probe=fail)
    settings.environment(BACKEND_PRIORITY="plain,python")
    tensor_ops.reload_config()
    assert PersistentKernel().explain().backend == "python"


def test_backends_that_run_programs_are_listed(runner, install, settings, capsys):
    runner("mine")
    runner("absent", available=False)
    install("plain")
    settings.environment(BACKEND_PRIORITY="plain,absent,mine,python")
    tensor_ops.reload_config()
    assert tensor_ops.get_available_backends() == ["mine", "python"]
    assert tensor_ops.get_available_backends(runs_programs=True) == ["mine", "python"]
    assert tensor_ops.get_available_backends(runs_programs=False) == ["plain", "mine", "python"]
    assert tensor_ops.get_backend_info()["available_backends"] == ["plain", "mine", "python"]
    tensor_ops.list_backends(verbose=True)
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    for name, line in lines.items():
        assert line.endswith("; runs programs too") == (name in ("mine", "python", "numpy"))


def test_the_error_is_of_every_kind_that_callers_expect_and_survives_pickle(install):
    install("plain")
    with pytest.raises(tensor_ops.BackendUnavailableError) as raised:
        PersistentKernel(backend="plain")
    assert isinstance(raised.value, ValueError)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.name) == (str(raised.value), "plain")


def test_a_plug_in_runs_programs(runner):
    runner("mine")
    with compiled(backend="mine") as kernel:
        assert kernel.explain().backend == "mine"
        assert kernel()


def test_a_program_that_is_refused_falls_back_when_it_is_known(runner):
    runner("mine", refuses="it has no attention")
    kernel = PersistentKernel(backend="mine", fallback_backends=["numpy"])
    assert kernel.explain().backend == "mine"
    with pytest.warns(BackendFallbackWarning, match="'mine': it has no attention") as record:
        kernel.compile()
    assert record[0].filename == __file__
    assert kernel.explain().backend == "python"
    assert [tuple(step) for step in kernel.explain().steps] == [
        ("mine", "it has no attention"),
        ("python", None),
    ]


def test_a_program_that_is_refused_is_an_error_without_fallbacks(runner):
    runner("mine", refuses="it has no attention")
    with pytest.raises(NoExecutorError, match=r"mine: it has no attention$"):
        compiled(backend="mine")


@pytest.mark.parametrize("answer", ["", 3])
def test_a_wrong_answer_of_a_plug_in_is_a_reason(runner, answer):
    runner("mine", refuses=answer)
    with pytest.raises(NoExecutorError, match=r"supports_program.. returned"):
        compiled(backend="mine")


def test_a_plug_in_that_fails_is_a_reason(runner):
    def fail(program):
        raise OSError("no driver")

    runner("mine", supports_program=fail)
    with pytest.raises(NoExecutorError, match=r"supports_program.. failed: OSError: no driver"):
        compiled(backend="mine")


def test_the_levels_decide_in_their_order(runner, settings):
    runner("mine")
    runner("other")
    settings.environment(BACKEND="mine")
    tensor_ops.reload_config()
    assert PersistentKernel().explain().backend == "mine"
    tensor_ops.set_default_backend("other")
    assert PersistentKernel().explain().backend == "other"
    with tensor_ops.use_backend("python"):
        assert PersistentKernel().explain().backend == "python"
        assert PersistentKernel(backend="mine").explain().backend == "mine"


def test_what_is_in_force_when_the_kernel_is_made_holds(runner):
    runner("mine")
    with tensor_ops.use_backend("mine"):
        kernel = PersistentKernel()
    kernel.compile()
    assert kernel.explain().backend == "mine"


def test_a_preferred_backend_that_cannot_falls_back_with_a_warning(install, settings):
    install("plain")
    settings.write(preferred_backend="plain", backend_priority=["plain", "python"])
    tensor_ops.reload_config()
    with pytest.warns(BackendFallbackWarning, match="single ops") as record:
        kernel = PersistentKernel()
    assert kernel.explain().backend == "python"
    assert record[0].filename == __file__


def test_a_broken_backend_is_warned_of_where_none_was_asked_for(install, settings):
    install("broken", API_VERSION=0)
    settings.environment(BACKEND_PRIORITY="broken,python")
    tensor_ops.reload_config()
    with pytest.warns(BackendFallbackWarning, match="'broken': .*API_VERSION 0"):
        assert PersistentKernel().explain().backend == "python"


def test_a_force_stays_strict(runner, settings):
    runner("mine", refuses="too large")
    settings.environment(FORCE_BACKEND="mine")
    tensor_ops.reload_config()
    with pytest.raises(NoExecutorError, match=r"mine: too large; python: .*forces 'mine'"):
        compiled(fallback_backends=["python"])
    with pytest.raises(NoExecutorError, match=r"python: .*forces 'mine'"):
        PersistentKernel(backend="python")


def test_a_force_is_named_where_the_forced_backend_cannot(runner, install, settings):
    """No other may be named then, so that no other is advised."""
    runner("mine", refuses="too large")
    install("plain")
    for name, reason in (
        ("mine", "too large"),
        ("plain", "it computes single ops and runs no programs"),
        ("nki", tensor_ops.get_backend_info("nki")["reason"]),
    ):
        settings.environment(FORCE_BACKEND=name)
        with contextlib.suppress(tensor_ops.BackendUnavailableError):
            tensor_ops.reload_config()
        with pytest.raises(NoExecutorError) as raised:
            compiled()
        assert str(raised.value) == (
            f"no backend can run the program: {name}: {reason}; TENSOR_OPS_FORCE_BACKEND forces "
            f"{name!r}; to lift it, unset TENSOR_OPS_FORCE_BACKEND"
        )


class TestOptions:
    """A backend that does not take the options is passed over, as for any other reason."""

    def test_they_are_a_reason_among_the_others(self, runner):
        runner("mine", available=False)
        with warnings.catch_warnings(action="error"), pytest.raises(NoExecutorError) as raised:
            PersistentKernel(backend="mine", fallback_backends=["python"], activations="float32")
        assert str(raised.value) == (
            "no backend can run the program: mine: no mine device; python: the backend 'python' "
            "has no option 'activations', and rounds nothing that it computes in 'float32'; leave "
            "it out"
        )

    @pytest.mark.parametrize("backend", ["python", None])
    def test_without_others_the_executor_says_so_when_there_is_something_to_compile(self, backend):
        """An export of the model needs no executable."""
        kernel = PersistentKernel(backend=backend, activations="nope")
        assert kernel.explain().backend == (backend or tensor_ops.get_backend())
        with pytest.raises(ValueError, match=r"has no option 'activations'|activations must be"):
            kernel.compile()

    def test_a_number_of_workers_is_no_reason_for_a_slower_backend(self):
        kernel = PersistentKernel(num_workers=10**6)
        with pytest.raises(ValueError, match=r"num_workers must be .*1000000"):
            kernel.compile()

    @pytest.mark.parametrize("given", [{"activations": "int8"}, {"num_workers": 10**6}], ids=str)
    def test_the_next_backend_runs(self, runner, given):
        def refuse(program, *, num_workers, options):
            assert {"num_workers": num_workers, **options}.items() >= given.items()
            raise ValueError("not so")

        runner("mine", program_memory=refuse)
        runner("other")
        with pytest.warns(BackendFallbackWarning, match="'mine': not so.* on 'other'") as record:
            kernel = PersistentKernel(backend="mine", fallback_backends=["other"], **given)
        assert len(record) == 1
        assert kernel.explain().backend == "other"

    def test_a_wrong_type_is_wrong_on_every_backend(self, runner):
        def refuse(program, **given):
            raise TypeError("use_cutlass_kernel must be a bool")

        runner("cuda", program_memory=refuse)
        with pytest.raises(TypeError, match="must be a bool"):
            PersistentKernel(backend="cuda", fallback_backends=["python"], use_cutlass_kernel="yes")


def test_an_unknown_name_raises_before_anything_is_tried(runner):
    runner("mine")
    with pytest.raises(tensor_ops.ConfigError, match="did you mean 'numpy'"):
        PersistentKernel(backend="mine", fallback_backends=["nunpy"])
    with pytest.raises(TypeError, match=r"write \['python'\]"):
        PersistentKernel(backend="mine", fallback_backends="python")


def test_an_option_of_cuda_is_refused_elsewhere():
    with pytest.raises(NoExecutorError, match="use_cutlass_kernel chooses between kernels of"):
        PersistentKernel(backend="python", use_cutlass_kernel=True)


def test_the_explanation_prints_and_is_plain():
    kernel = PersistentKernel(backend="numpy", max_num_batched_requests=2)
    before = kernel.explain().as_dict()
    assert (before["memory"], before["options"]) == ({}, {})
    kernel.compile()
    after = kernel.explain()
    assert after.as_dict()["limits"] == {
        "max_seq_length": 2048,
        "max_num_batched_requests": 2,
        "max_num_batched_tokens": 256,
        "max_num_pages": 256,
        "page_size": 16,
        "num_speculative_tokens": 0,
        "max_num_snapshots": 0,
    }
    assert after.as_dict()["options"] == {"dtype": "float32"}
    assert after.memory["caches"] == 2 * 2 * 256 * 16 * 2 * 16 * 2
    lines = str(after).splitlines()
    assert lines[0].startswith("python runs a stand-in of 2 layers with random weights")
    assert "  decided by backend= of PersistentKernel() (named)" in lines
