"""Settings of sampling are refused alike of requests in Python and of sequences in C++."""

import pytest

from exported_models import words
from tensor_ops_decode.scheduling.sampling import Sampling
from wrong_steps import ALLOWED_SAMPLINGS, WRONG_SAMPLINGS

USUAL = {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0}


@pytest.mark.parametrize(("name", "value"), WRONG_SAMPLINGS)
def test_a_request_refuses_what_is_wrong(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*got {value}"):
        Sampling(**{name: value})


@pytest.mark.parametrize(("name", "value"), ALLOWED_SAMPLINGS)
def test_a_request_takes_what_is_allowed(name, value):
    assert getattr(Sampling(**{name: value}), name) == value


def test_a_sequence_refuses_and_takes_the_same(exported, cpp, driver):
    entries = WRONG_SAMPLINGS + ALLOWED_SAMPLINGS
    lines = [words("sampling 0", *(USUAL | {name: value}).values()) for name, value in entries]
    _, _, *found = driver(words("open", exported, 1), "sequence", *lines)
    number = len(WRONG_SAMPLINGS)
    for (name, _), message in zip(WRONG_SAMPLINGS, found[:number], strict=True):
        assert message.startswith(f"ValueError: set_sampling: {name} must be "), message
        assert ", got " in message
    assert found[number:] == [""] * len(ALLOWED_SAMPLINGS)
