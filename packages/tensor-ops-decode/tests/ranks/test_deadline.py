"""For how long a rank waits, as the environment says."""

import pytest

from tensor_ops_decode.ranks.deadline import VARIABLE, deadline_seconds, too_late


@pytest.mark.parametrize(("text", "seconds"), [("", 600.0), ("0.5", 0.5), (" 90 ", 90.0)])
def test_seconds_are_read(text, seconds, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    assert deadline_seconds() == seconds


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_what_is_no_time_is_an_error(text, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"{VARIABLE} must be a positive number of seconds, got"):
        deadline_seconds()


def test_the_ranks_that_are_late_are_named():
    error = too_late(3.0, [1, 2])
    assert str(error).startswith("rank 1 and rank 2 did not come to the same step within 3 s")
    assert error.rank == 1
    assert too_late(3.0, []).rank is None
