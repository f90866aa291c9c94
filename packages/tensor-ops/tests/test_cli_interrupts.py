"""Ctrl-C while a command starts, works and ends: one status, and no traceback."""

import os
import signal

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.mark.parametrize(
    "words", [["explain", "silu"], ["configure_backend", "--show"]], ids=" ".join
)
def test_ctrl_c_at_any_time_is_quiet(words, interrupted_start, monkeypatch):
    # Without OpenCL, whose drivers have messages of their own.
    monkeypatch.setenv("TENSOR_OPS_BACKEND_PRIORITY", "cpp,python")
    for step in range(12):
        status, told = interrupted_start(words, step * 0.06)
        # As Python ends it gives the signal back to the system, which shells report as 130 too.
        assert status in (0, 130, -signal.SIGINT), step
        assert told == "", step
