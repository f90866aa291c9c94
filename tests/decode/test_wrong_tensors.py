"""Wrong tensors are refused alike by every executor, and what is allowed by none."""

import numpy as np
import pytest

from wrong_programs import base_program, tensors_of
from wrong_steps import RUN, fill
from wrong_tensors import ALLOWED_TENSORS, WRONG_TENSORS

PROGRAM = base_program()
TEXT = PROGRAM.to_json()


def changed(name, change):
    tensors = tensors_of(PROGRAM)
    return tensors | {name: change(tensors.get(name))}


def logits(executor, tensors):
    made = executor.compile_program(TEXT, tensors)
    fill(made.arrays)
    made.run(*RUN)
    found = made.arrays["logits"].copy()
    made.close()
    return found


@pytest.mark.parametrize(("name", "change", "words"), WRONG_TENSORS.values(), ids=WRONG_TENSORS)
def test_a_wrong_tensor_is_refused_by_a_message_that_names_it(executor, name, change, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        executor.compile_program(TEXT, changed(name, change))
    message = str(caught.value)
    assert all(word in message for word in [f"tensor {name!r}", *words]), message


def test_a_missing_tensor_is_refused(executor):
    tensors = tensors_of(PROGRAM)
    del tensors["bias"]
    with pytest.raises(ValueError, match="tensor 'bias' is "):
        executor.compile_program(TEXT, tensors)


@pytest.mark.parametrize(("name", "change"), ALLOWED_TENSORS.values(), ids=ALLOWED_TENSORS)
def test_what_is_allowed_has_the_same_bits(executor, name, change):
    expected = logits(executor, tensors_of(PROGRAM))
    np.testing.assert_array_equal(logits(executor, changed(name, change)), expected)
