"""A wrong program is refused alike by every executor, and what is allowed by none."""

import json

import pytest

from tensor_ops_decode.errors import ProgramError
from tensor_ops_decode.program import Program
from whole_programs import program_for, tensors_of
from wrong_programs import (
    ALLOWED_PROGRAMS,
    DELETED,
    WRONG_PROGRAMS,
    WRONG_SOURCES,
    WRONG_TEXTS,
    WRONG_TOGETHER,
    has_places,
    text_with,
)

WRONG = [({place: value}, words) for place, value, words in WRONG_PROGRAMS] + WRONG_TOGETHER


def shown(changes):
    return ",".join(
        f"{place}={'deleted' if value is DELETED else value!r:.30}"
        for place, value in changes.items()
    )


def of_changes(entries):
    return [pytest.param(*entry, id=shown(entry[0])[:90]) for entry in entries]


def refusal(executor, text):
    """Return why an executor refuses a program, whether it is asked or to compile it."""
    with pytest.raises(ValueError, match=r"[a-z]") as caught:
        executor.compile_program(text, {})
    assert executor.supports_program(text) == str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("changes", "words"), of_changes(WRONG))
def test_a_wrong_program_is_refused_by_a_message_that_names_the_place(executor, changes, words):
    message = refusal(executor, text_with(changes))
    assert all(word in message for word in words), message


@pytest.mark.parametrize("text", WRONG_TEXTS.values(), ids=WRONG_TEXTS)
def test_text_that_is_no_program_is_refused(executor, text):
    assert refusal(executor, text).startswith("program")


@pytest.mark.parametrize(("source", "words"), WRONG_SOURCES)
def test_a_wrong_source_is_refused_by_who_loads_the_weights(source, words):
    with pytest.raises(ProgramError) as caught:
        Program.from_json(text_with({"tensors/table/source": source}))
    assert all(word in str(caught.value) for word in ["table", *words]), caught.value


@pytest.mark.parametrize("changes", ALLOWED_PROGRAMS.values(), ids=ALLOWED_PROGRAMS)
def test_what_is_allowed_is_no_error(executor, changes):
    program = program_for(executor)
    if not has_places(changes, program):
        pytest.skip("the executor runs no such node")
    text = text_with(changes, program.to_json())
    assert executor.supports_program(text) is None
    assert Program.from_json(Program.from_json(text).to_json()) == Program.from_json(text)


def test_names_of_outputs_may_have_any_character(executor):
    program = program_for(executor)
    name = "lo\0g\N{GRINNING FACE}"
    text = program.to_json().replace('"logits"', json.dumps(name))
    made = executor.compile_program(text, tensors_of(program))
    made.arrays["page_table"][:] = 0
    made.run(1, 1)
    assert name in made.arrays
    made.close()


def test_no_output_is_named_like_an_array_of_every_step(executor):
    program = program_for(executor)
    made = executor.compile_program(program.to_json(), tensors_of(program))
    names = [name for name in made.arrays if name not in (*program.outputs, "tokens")]
    made.close()
    for name in names:
        text = program.to_json().replace('"next"', json.dumps(name))
        expected = f"outputs: {name!r} is the name of an array of every step"
        assert expected in refusal(executor, text)
