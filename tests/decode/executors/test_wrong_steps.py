"""A wrong step is refused alike by every executor before it writes, and what is allowed by none."""

import numpy as np
import pytest

from tensor_ops_decode.program.builder import Builder
from whole_programs import LIMITS, program_for, tensors_of
from wrong_steps import (
    ALLOWED_STEPS,
    RUN,
    WRONG_ARGUMENTS,
    WRONG_NUMBERS,
    WRONG_ROWS,
    WRONG_STEPS,
    fill,
    fill_row,
    run_row,
)

# The executables of this file, by executor and by the arguments of `program_for`.
_made = {}


@pytest.fixture(scope="module", autouse=True)
def closing():
    yield
    for each in _made.values():
        each.close()
    _made.clear()


def compiled(executor, *windows, **given):
    key = (executor.__name__, windows, *given.items())
    if key not in _made:
        program = program_for(executor, *windows, **given)
        _made[key] = executor.compile_program(program.to_json(), tensors_of(program))
        if not windows:
            fill_caches(_made[key])
    return _made[key]


def fill_caches(executable):
    """Write all positions of all slots, since the steps of this file begin at later ones."""
    arrays = executable.arrays
    fill(arrays)
    for slot in range(LIMITS.max_requests):
        for first in range(0, LIMITS.max_seq_length, LIMITS.max_tokens):
            arrays["slots"][:] = slot
            arrays["positions"][:] = np.arange(LIMITS.max_tokens) + first
            executable.run(LIMITS.max_tokens, 0)


@pytest.fixture
def executable(executor):
    return compiled(executor)


def refusal(executable, call):
    """Return why a call is refused, which has written nothing."""
    for name in {"logits", "largest", "next"} & set(executable.arrays):
        executable.arrays[name][:] = 7
    before = {name: array.copy() for name, array in executable.arrays.items()}
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    for name, array in executable.arrays.items():
        np.testing.assert_array_equal(array, before[name], name)
    return str(caught.value)


def shown(entry):
    return f"{entry[0]}{list(entry[1])}={entry[2]}"


@pytest.mark.parametrize(
    ("name", "place", "value", "words"), WRONG_STEPS, ids=map(shown, WRONG_STEPS)
)
def test_a_wrong_step_is_refused(executable, name, place, value, words):
    fill(executable.arrays)
    executable.arrays[name][place] = value
    message = refusal(executable, lambda: executable.run(*RUN))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("name", "place", "value", "words"), WRONG_ROWS, ids=map(shown, WRONG_ROWS)
)
def test_wrong_steps_in_a_row_are_refused(executable, name, place, value, words):
    fill_row(executable.arrays)
    executable.arrays[name][place] = value
    message = refusal(executable, lambda: run_row(executable))
    assert all(word in message for word in words), message


def test_a_slot_has_one_token_in_steps_in_a_row(executable):
    arrays = executable.arrays
    fill_row(arrays)
    arrays["slots"][:3], arrays["positions"][:3] = [2, 2, 1], [6, 7, 13]
    message = refusal(executable, lambda: run_row(executable))
    assert "each slot must have one token" in message
    assert "2" in message


@pytest.mark.parametrize(("given", "words"), WRONG_NUMBERS)
def test_wrong_numbers_of_tokens_are_refused(executable, given, words):
    fill(executable.arrays)
    message = refusal(executable, lambda: executable.run(*given))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(("given", "words"), WRONG_ARGUMENTS)
def test_wrong_arguments_of_steps_in_a_row_are_refused(executable, given, words):
    fill_row(executable.arrays)
    message = refusal(executable, lambda: run_row(executable, **given))
    assert all(word in message for word in words), message


@pytest.mark.parametrize(("name", "place", "value"), ALLOWED_STEPS, ids=map(shown, ALLOWED_STEPS))
def test_what_is_allowed_is_no_error(executable, name, place, value):
    fill(executable.arrays)
    executable.run(*RUN)
    usual = executable.arrays["logits"][:3].copy()
    fill(executable.arrays)
    executable.arrays[name][place] = value
    executable.run(*RUN)
    if name == "page_table":  # what is not read changes nothing
        assert np.isfinite(usual).all()
        np.testing.assert_array_equal(executable.arrays["logits"][:3], usual)


@pytest.mark.parametrize("windows", [(5, 0), (0, 0), (14, 3), (5, 11)])
def test_pages_within_any_window_must_be_there(executor, windows):
    executable = compiled(executor, *windows)
    fill(executable.arrays)
    executable.arrays["page_table"][1, 0] = -1
    message = refusal(executable, lambda: executable.run(*RUN))
    assert "page_table[1, 0] must be from 0 to 11, got -1" in message


def test_tokens_that_no_table_bounds_are_below_the_largest_int32(executor):
    made = executor.compile_program(Builder(LIMITS).program([]).to_json(), {})
    made.arrays["tokens"][0] = 2**31 - 2
    made.run(1, 0)
    made.arrays["tokens"][0] = 2**31 - 1
    with pytest.raises(ValueError, match="token must be from 0 to 2147483646, got 2147483647"):
        made.run(1, 0)
    made.close()


def test_a_closed_executable_runs_nothing(executor):
    program = program_for(executor)
    made = executor.compile_program(program.to_json(), tensors_of(program))
    made.close()
    made.close()
    for call in (lambda: made.run(*RUN), lambda: run_row(made)):
        with pytest.raises(RuntimeError, match="the executable is closed"):
            call()


def test_caches_without_pages_need_none(executor):
    executable = compiled(executor, paged=False)
    fill(executable.arrays)
    executable.arrays["page_table"][:] = -1
    executable.run(*RUN)
    fill_row(executable.arrays)
    executable.arrays["page_table"][:] = -1
    assert len(run_row(executable)) == 5


def test_a_page_before_every_window_may_hold_anything(executor):
    """Another request may have it, whose numbers may be NaN."""
    executable = compiled(executor)
    arrays = executable.arrays
    fill(arrays)
    executable.run(*RUN)
    usual = arrays["logits"][:3].copy()
    arrays["page_table"][1, :2] = arrays["page_table"][1, 2:4]
    executable.run(*RUN)
    np.testing.assert_array_equal(arrays["logits"][:3], usual)
