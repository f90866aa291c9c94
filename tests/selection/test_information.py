"""Information about the backends and about the choice between them."""

import numpy as np
import pytest

import tensor_ops
from tensor_ops import (
    ConfigError,
    explain,
    use_backend,
)

pytestmark = pytest.mark.usefixtures("fakes")


class TestInfo:
    def test_get_backend_follows_the_context(self):
        assert tensor_ops.get_backend() == "alpha"
        with use_backend("python"):
            assert tensor_ops.get_backend() == "python"

    def test_get_backend_info_of_the_selection(self, settings):
        assert tensor_ops.get_backend_info() == {
            "backend": "alpha",
            "config": {
                "preferred_backend": "auto",
                "backend_priority": ["alpha", "beta", "python"],
                "force_backend": None,
            },
            "config_file": str(settings.file),
            "available_backends": ["alpha", "beta", "python"],
            "decided_by": str(settings.file),
        }

    def test_get_backend_info_of_the_context(self):
        with use_backend("beta"):
            info = tensor_ops.get_backend_info()
        assert (info["backend"], info["decided_by"]) == ("beta", "use_backend()")

    @pytest.mark.parametrize("name", ["alpha", "hollow", "python", "mps"])
    def test_get_backend_info_has_the_same_keys_for_every_backend(self, name):
        info = tensor_ops.get_backend_info(name)
        assert set(info) == {
            *("name", "display_name", "available", "reason", "version", "device_name"),
            *("device_count", "compute_capability", "compute_units", "max_memory"),
            *("max_shared_memory", "dtypes", "ops"),
        }
        assert info["name"] == name
        assert info["available"] == (name in ("alpha", "python")) == (info["reason"] is None)

    def test_get_backend_info_takes_aliases(self):
        assert tensor_ops.get_backend_info("numpy")["name"] == "python"

    @pytest.mark.parametrize("ask", [tensor_ops.get_backend_info, tensor_ops.is_backend_available])
    @pytest.mark.parametrize(
        ("name", "says"), [("alhpa", "did you mean 'alpha'"), ("auto", "'auto' is not a backend")]
    )
    def test_names_that_are_no_backend(self, ask, name, says):
        with pytest.raises(ConfigError, match=says):
            ask(name)

    def test_is_backend_available(self):
        available = tensor_ops.is_backend_available
        assert available("alpha")
        assert available("numpy")
        assert not available("hollow")
        assert not available("mps")

    def test_get_available_backends_is_in_the_order_of_priority(self, settings):
        settings.write(backend_priority=["python", "hollow", "beta"])
        tensor_ops.reload_config()
        assert tensor_ops.get_available_backends(runs_programs=False) == ["python", "beta"]
        assert tensor_ops.get_backend_info()["available_backends"] == ["python", "beta"]

    def test_list_backends(self, capsys):
        names = tensor_ops.list_backends()
        assert names[:3] == ["alpha", "beta", "python"]
        assert {"hollow", "cuda", "opencl", "cpp", "mps", "mkl", "triton"} <= set(names)
        assert len(names) == len(set(names))
        assert capsys.readouterr().out == ""

    def test_list_backends_verbose(self, capsys):
        names = tensor_ops.list_backends(verbose=True)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [*names, "numpy", "cpu", "openmp"]
        shown = dict(line.split(maxsplit=1) for line in lines)
        assert shown["alpha"] == "available: Fake alpha on a fake"
        assert shown["hollow"] == "installed, outside the priority list: not imported"
        assert shown["mps"] == f"unavailable: {tensor_ops.get_backend_info('mps')['reason']}"
        assert shown["numpy"] == f"stands for python: {shown['python']}"
        assert shown["openmp"] == f"stands for cpp: {shown['cpp']}"
        assert shown["cpu"] in (shown["numpy"], shown["openmp"])
        assert tensor_ops.list_backends() == names  # looking changes nothing

    def test_what_was_asked_for_before_changes_no_list(self, capsys):
        def lists():
            tensor_ops.list_backends(verbose=True)
            return tensor_ops.get_available_backends(runs_programs=False), capsys.readouterr().out

        before = lists()
        tensor_ops.is_backend_available("hollow")
        tensor_ops.is_backend_available("beta")
        with use_backend("beta"):
            pass
        assert lists() == before

    def test_display_name_is_one_name(self):
        assert tensor_ops.get_backend_info("python")["display_name"] == "Python (NumPy)"
        assert tensor_ops.get_backend_info("alpha")["display_name"] == "Fake alpha"


class TestExplain:
    def test_the_whole_walk_as_text(self, settings):
        settings.write(backend_priority=["hollow", "alpha", "beta", "python"])
        tensor_ops.reload_config()
        assert str(explain("silu", np.ones(1))) == (
            "silu for float64 on cpu: python runs\n"
            f"  decided by {settings.file} (auto)\n"
            "  hollow: no hollow device\n"
            "  alpha: no float64 on cpu\n"
            "  beta: no float64 on cpu\n"
            "  python: chosen"
        )

    def test_the_whole_walk_as_a_dict(self, settings):
        assert explain(tensor_ops.silu, x=np.ones(1, np.float16)).as_dict() == {
            "op": "silu",
            "dtype": "float16",
            "device": "cpu",
            "backend": "beta",
            "decided_by": str(settings.file),
            "mode": "auto",
            "steps": [
                {"backend": "alpha", "reason": "no float16 on cpu"},
                {"backend": "beta", "reason": None},
            ],
            "overridden": [],
            "times": None,
        }

    def test_without_arguments_only_the_op_counts(self):
        assert explain("silu").backend == "alpha"
        assert explain("rms_norm", eps=1e-3).backend == "python"
        assert explain("rms_norm").steps[0].reason == "it has no rms_norm"

    def test_who_decided(self):
        tensor_ops.set_default_backend("beta")
        assert explain("silu").decided_by == "set_default_backend()"
        with use_backend("beta"):
            assert explain("silu").decided_by == "use_backend()"
            assert explain("silu", backend="alpha").decided_by == "backend= on the call"
            assert explain("silu", backend="alpha").mode == "named"

    def test_a_strict_choice_that_cannot_run(self):
        explanation = explain("silu", np.ones(1), backend="alpha")
        assert explanation.backend is None
        assert str(explanation).splitlines()[0] == "silu for float64 on cpu: no backend can run"
        assert [step.backend for step in explanation.steps] == ["alpha"]

    def test_an_unavailable_strict_choice(self):
        (step,) = explain("silu", backend="hollow").steps
        assert step.reason == "no hollow device"

    def test_it_says_what_then_happens(self, who):
        for dtype in ("float32", "float16", "float64"):
            assert explain("silu", np.ones(3, dtype)).backend == who(dtype)

    @pytest.mark.parametrize("x", [[1.0], 1.0, np.float32(1), np.ones(3, int), None], ids=repr)
    def test_what_the_op_refuses_is_refused_with_the_same_error(self, x):
        with pytest.raises(TypeError) as of_the_call:
            tensor_ops.silu(x)
        with pytest.raises(TypeError) as of_explain:
            explain("silu", x)
        assert str(of_explain.value) == str(of_the_call.value)

    def test_arguments_that_the_op_does_not_have(self):
        with pytest.raises(TypeError, match="'y'"):
            explain("silu", y=np.ones(1))

    def test_an_unknown_op_lists_the_ops(self):
        with pytest.raises(ValueError, match=r"no op 'slu'.*rms_norm"):
            explain("slu")
