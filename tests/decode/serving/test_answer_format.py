"""Messages with calls, as a template is to see them."""

from tensor_ops_decode.serving.formats.answer_format import AnswerFormat


def message(arguments):
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}


def test_arguments_are_in_the_form_that_the_template_wants():
    texts, objects = AnswerFormat(has_text_arguments=True), AnswerFormat()
    assert objects.seen_messages([message('{"a": 1}')]) == [message({"a": 1})]
    assert texts.seen_messages([message('{"a": 1}')]) == [message('{"a": 1}')]
    assert objects.seen_messages([message({"a": 1})]) == [message({"a": 1})]
    assert texts.seen_messages([message({"a": 1})]) == [message('{"a": 1}')]
    assert objects.seen_messages([message("")]) == [message({})]


def test_what_is_no_call_or_no_json_stays_as_it_is():
    for each in (
        message("{"),
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": None},
        {"role": "assistant", "tool_calls": ["f", {"function": None}]},
    ):
        assert AnswerFormat().seen_messages([each]) == [each]


def test_ids_are_letters_and_digits_unless_they_are_names():
    first, second = (AnswerFormat().call_id("f", 0) for _ in range(2))
    assert len(first) == 9
    assert first.isalnum()
    assert first != second
    assert AnswerFormat(has_named_ids=True).call_id("f", 0) == "functions.f:0"
