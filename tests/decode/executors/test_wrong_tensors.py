"""Wrong tensors are refused alike by every executor, and what is allowed by none."""

import numpy as np
import pytest

from whole_programs import program_for, tensors_of
from wrong_steps import RUN, fill
from wrong_tensors import ALLOWED_TENSORS, WRONG_TENSORS


@pytest.fixture
def program(executor):
    return program_for(executor)


def changed(program, name, change):
    tensors = tensors_of(program)
    return tensors | {name: change(tensors.get(name))}


def logits(executor, program, tensors):
    made = executor.compile_program(program.to_json(), tensors)
    fill(made.arrays)
    made.run(*RUN)
    found = made.arrays["logits"].copy()
    made.close()
    return found


@pytest.mark.parametrize(("name", "change", "words"), WRONG_TENSORS.values(), ids=WRONG_TENSORS)
def test_a_wrong_tensor_is_refused_by_a_message_that_names_it(
    executor, program, name, change, words
):
    with pytest.raises((ValueError, TypeError)) as caught:
        executor.compile_program(program.to_json(), changed(program, name, change))
    message = str(caught.value)
    assert all(word in message for word in [f"tensor {name!r}", *words]), message


def test_a_missing_tensor_is_refused(executor, program):
    tensors = tensors_of(program)
    del tensors["norm"]
    with pytest.raises(ValueError, match="tensor 'norm' is "):
        executor.compile_program(program.to_json(), tensors)


@pytest.mark.parametrize(("name", "change"), ALLOWED_TENSORS.values(), ids=ALLOWED_TENSORS)
def test_what_is_allowed_has_the_same_bits(executor, program, name, change):
    expected = logits(executor, program, tensors_of(program))
    found = logits(executor, program, changed(program, name, change))
    np.testing.assert_array_equal(found, expected)
