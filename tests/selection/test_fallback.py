"""Falling back: for an op or dtype, and where a backend is unavailable."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensor_ops
from tensor_ops import (
    BackendError,
    BackendFallbackWarning,
    ConfigError,
    explain,
)

pytestmark = pytest.mark.usefixtures("fakes")


class TestPassingOn:
    """Auto and a preference pass an op or dtype on, in order; a name and force do not."""

    def test_auto(self, who):
        assert [who(dtype) for dtype in ("float32", "float16", "float64")] == [
            "alpha",
            "beta",
            "python",
        ]

    def test_a_preference(self, who):
        tensor_ops.set_default_backend("beta")
        assert [who(dtype) for dtype in ("float32", "float16", "float64")] == [
            "beta",
            "beta",
            "python",
        ]

    def test_an_op_that_backends_lack(self):
        x = np.ones((1, 2), np.float32)
        assert isinstance(tensor_ops.rms_norm(x, x[0]), np.ndarray)

    def test_force(self, settings, who):
        settings.environment(FORCE_BACKEND="alpha")
        tensor_ops.reload_config()
        assert who() == "alpha"
        with pytest.raises(BackendError, match=r"force by TENSOR_OPS_FORCE_BACKEND"):
            who("float64")

    def test_nothing_is_warned_of(self, who):
        tensor_ops.set_default_backend("beta")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert who("float64") == "python"


class TestFallback:
    """A preferred backend that is unavailable."""

    @pytest.fixture(autouse=True)
    def prefer_hollow(self, settings, fakes):
        settings.write(preferred_backend="hollow", backend_priority=["beta", "python"])
        tensor_ops.reload_config()

    def test_warns_once_at_the_callers_line(self, who):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [who(), who("float64"), tensor_ops.get_backend()] == ["beta", "python", "beta"]
        (warning,) = caught
        assert warning.category is BackendFallbackWarning
        assert warning.filename.endswith("conftest.py")  # who() is there
        for text in ("'hollow'", "backend.json", "no hollow device", "'beta'"):
            assert text in str(warning.message)

    def test_a_warning_that_is_an_error_is_one_every_time_until_it_is_none(self, who):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                with pytest.raises(BackendFallbackWarning):
                    who()
                with pytest.raises(BackendFallbackWarning):
                    tensor_ops.get_backend()
            assert who(backend="beta") == "beta"
        with pytest.warns(BackendFallbackWarning):
            assert who() == "beta"
        assert who() == "beta"

    def test_threads_that_call_first_together_see_one_warning(self, who):
        start = threading.Barrier(8, timeout=30)

        def work():
            start.wait()
            return who()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with ThreadPoolExecutor(8) as pool:
                ran = [future.result() for future in [pool.submit(work) for _ in range(8)]]
        assert ran == ["beta"] * 8
        assert [warning.category for warning in caught] == [BackendFallbackWarning]

    def test_code_without_a_module_name_is_warned_too(self):
        with pytest.warns(BackendFallbackWarning):
            exec("import tensor_ops; tensor_ops.get_backend()", {})

    def test_explaining_warns_of_nothing(self):
        assert [step.backend for step in explain("silu").steps] == ["hollow", "beta"]

    def test_a_reload_tries_again(self, install, settings, who):
        with pytest.warns(BackendFallbackWarning):
            assert who() == "beta"
        settings.write(preferred_backend="late", backend_priority=["beta", "python"])
        with pytest.raises(ConfigError, match="unknown backend 'late'"):
            tensor_ops.reload_config()
        assert who() == "beta"  # nothing has changed
        install("late")
        assert who() == "late"
