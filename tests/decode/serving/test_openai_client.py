"""What OpenAI's client gets is what the model's methods return."""

import asyncio
import json

import jsonschema
import numpy as np
import openai
import pydantic
import pytest

MESSAGES = [{"role": "user", "content": "How are you?"}]
HOW = {"seed": 5, "temperature": 1.3, "top_p": 0.9}
GIVEN = {**HOW, "model": "bytes", "max_tokens": 12}


@pytest.fixture(scope="module")
def answer(model):
    return model.chat(MESSAGES, max_new_tokens=12, logprobs=2, **HOW)


def test_models_are_listed(client, model):
    (found,) = client.models.list().data
    assert found.id == "bytes"
    assert client.models.retrieve("bytes") == found
    assert found.max_model_len == model.kernel.program.limits.longest
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'; this server has"):
        client.models.retrieve("other")


def test_a_chat_is_answered_as_by_the_model(client, answer):
    found = client.chat.completions.create(
        messages=MESSAGES, logprobs=True, top_logprobs=2, **GIVEN
    )
    (choice,) = found.choices
    assert choice.message.content == answer.text
    assert choice.finish_reason == answer.finish_reason
    assert found.usage.prompt_tokens == len(answer.prompt_tokens)
    assert found.usage.completion_tokens == len(answer.tokens)
    for token, theirs, ours in zip(
        answer.tokens, choice.logprobs.content, answer.logprobs, strict=True
    ):
        assert theirs.bytes == ([token] if token < 256 else [*theirs.token.encode()])
        assert theirs.logprob == pytest.approx(ours.logprob)
        likeliest = [each.logprob for each in theirs.top_logprobs]
        assert likeliest == pytest.approx([each for _, each in ours.likeliest])


def test_pieces_of_a_chat_are_the_whole(client, answer):
    options = {"include_usage": True}
    pieces = client.chat.completions.create(
        messages=MESSAGES, stream=True, stream_options=options, logprobs=True, **GIVEN
    )
    *chunks, last = pieces
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == answer.text
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
    found = [each for choice in choices if choice.logprobs for each in choice.logprobs.content]
    ours = [each.logprob for each in answer.logprobs]
    assert [each.logprob for each in found] == pytest.approx(ours)
    assert (last.choices, last.usage.completion_tokens) == ([], len(answer.tokens))


def test_several_answers_of_several_prompts(client, model):
    prompts, how = ["one", "two"], {"temperature": 1.5, "seed": 3}
    expected = model.generate(prompts, n=3, max_new_tokens=7, **how)
    given = {"model": "bytes", "prompt": prompts, "n": 3, "max_tokens": 7, **how}
    found = client.completions.create(logprobs=1, **given)
    assert [each.text for each in found.choices] == [each.text for each in expected]
    assert [each.index for each in found.choices] == [*range(6)]
    assert found.usage.prompt_tokens == 6
    assert found.usage.completion_tokens == sum(len(each.tokens) for each in expected)
    texts, tokens = [""] * 6, [[] for _ in range(6)]
    for chunk in client.completions.create(stream=True, logprobs=1, **given):
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        tokens[choice.index] += choice.logprobs.tokens
    assert texts == [each.text for each in expected]
    assert tokens == [each.logprobs.tokens for each in found.choices]


def test_a_stream_counts_each_prompt_once(client):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    # The answers have many lengths, and so they end in another order than they have begun.
    given = {"model": "bytes", "prompt": ["1", "22" * 9], "extra_body": {"regex": "[ab]*c"}}
    for seed in range(4):
        *_, last = client.completions.create(n=2, seed=seed, max_tokens=99, **options, **given)
        assert last.usage.prompt_tokens == 19


def test_prompts_of_tokens(client, model):
    given = {"model": "bytes", "max_tokens": 4, "temperature": 0}
    (expected,) = model.generate([[65, 66, 67]], max_new_tokens=4)
    for prompt in ([65, 66, 67], [[65, 66, 67]]):
        assert client.completions.create(prompt=prompt, **given).choices[0].text == expected.text


def test_stop_strings_end_answers(client, model):
    (whole,) = model.generate(["stop"], max_new_tokens=40)
    stop = whole.text[10:12]
    (expected,) = model.generate(["stop"], max_new_tokens=40, stop=stop)
    given = {"model": "bytes", "prompt": "stop", "max_tokens": 40, "temperature": 0}
    (found,) = client.completions.create(stop=[stop], **given).choices
    assert (found.text, found.finish_reason) == (expected.text, "stop")
    pieces = client.completions.create(stop=stop, stream=True, **given)
    assert "".join(piece.choices[0].text for piece in pieces) == expected.text


def test_settings_are_those_of_generate(client, model):
    settings = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "penalty_last_n": 4}
    settings |= {"typical_p": 0.9, "xtc_probability": 0.5, "xtc_threshold": 0.02}
    settings |= {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_sequence_breakers": ["b"]}
    settings |= {"dry_base": 2.5, "dry_penalty_last_n": 7, "ignore_eos": True}
    known = {"seed": 1, "temperature": 0.9, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    bias = {65: 4.0, 66: -100.0}
    (expected,) = model.generate("ab", max_new_tokens=9, logit_bias=bias, **settings, **known)
    (found,) = client.completions.create(
        model="bytes",
        prompt="ab",
        max_tokens=9,
        logit_bias={str(token): value for token, value in bias.items()},
        extra_body=settings,
        **known,
    ).choices
    assert found.text == expected.text


class Point(pydantic.BaseModel):
    x: bool
    y: bool


def test_structured_output(client):
    how = {"model": "bytes", "messages": MESSAGES, "seed": 2, "max_tokens": 60}
    (choice,) = client.chat.completions.parse(response_format=Point, **how).choices
    assert isinstance(choice.message.parsed, Point)
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    schema["additionalProperties"] = False
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    (choice,) = client.chat.completions.create(response_format=wanted, **how).choices
    jsonschema.validate(json.loads(choice.message.content), schema)
    (choice,) = client.chat.completions.create(extra_body={"regex": "[ab]{3}"}, **how).choices
    assert set(choice.message.content) <= set("ab")
    wrong = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "x"}}}
    with pytest.raises(openai.BadRequestError, match="json_schema is refused by llguidance"):
        client.chat.completions.create(response_format=wrong, **how)


def test_embeddings(client, model):
    texts = ["one", "another text", *map(str, range(20))]
    expected = model.embed(texts)
    for how in ({}, {"encoding_format": "float"}, {"dimensions": expected.shape[1]}):
        found = client.embeddings.create(model="bytes", input=texts, **how)
        assert np.array_equal(np.float32([each.embedding for each in found.data]), expected)
        assert found.usage.prompt_tokens == sum(map(len, texts))
    (one,) = client.embeddings.create(model="bytes", input=[*b"one"]).data
    assert np.array_equal(np.float32(one.embedding), expected[0])
    with pytest.raises(openai.BadRequestError, match="dimensions must be 64, which the model has"):
        client.embeddings.create(model="bytes", input="a", dimensions=3)
    with pytest.raises(openai.BadRequestError, match="text 1: a text of 513 tokens is more than"):
        client.embeddings.create(model="bytes", input=["a", "a" * 513])


def test_clients_at_the_same_time(address, model):
    prompts = [f"prompt {number}" for number in range(12)]
    how = {"temperature": 1.1, "seed": 9}
    expected = [model.generate(each, max_new_tokens=15, **how)[0].text for each in prompts]

    async def text(client, prompt):
        given = {"model": "bytes", "prompt": prompt, "max_tokens": 15, **how}
        pieces = await client.completions.create(stream=True, **given)
        return "".join([piece.choices[0].text async for piece in pieces])

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
            return await asyncio.gather(*(text(client, prompt) for prompt in prompts))

    assert asyncio.run(all_of_them()) == expected


def test_responses(client, model):
    expected = model.chat(MESSAGES, max_new_tokens=12)
    given = {"model": "bytes", "temperature": 0, "max_output_tokens": 12}
    found = client.responses.create(input="How are you?", **given)
    assert (found.status, found.error) == ("incomplete", None)
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.output_text == expected.text
    assert [item.status for item in found.output] == ["incomplete"]
    assert found.usage.input_tokens == len(expected.prompt_tokens)
    assert found.usage.output_tokens == len(expected.tokens)
    parts = [{"type": "input_text", "text": "How are you?"}]
    with client.responses.stream(input=[{"role": "user", "content": parts}], **given) as stream:
        said = [*stream]
    pieces = [each.delta for each in said if each.type == "response.output_text.delta"]
    assert "".join(pieces) == expected.text
    assert said[-1].type == "response.incomplete"
    assert said[-1].response.output_text == expected.text
    assert [each.sequence_number for each in said] == [*range(len(said))]


def test_responses_with_a_schema(client):
    schema = Point.model_json_schema() | {"additionalProperties": False}
    wanted = {"format": {"type": "json_schema", "name": "point", "schema": schema}}
    found = client.responses.create(input="A point", text=wanted, model="bytes")
    assert found.status == "completed"
    Point.model_validate_json(found.output_text)


def test_responses_are_not_kept(client):
    with pytest.raises(openai.BadRequestError, match="the server keeps no responses"):
        client.responses.create(input="And?", previous_response_id="resp-1", model="bytes")


def test_tools_of_responses_that_are_no_functions_are_left_out(client):
    tools = [{"type": "web_search"}]
    found = client.responses.create(input="a", tools=tools, model="bytes", max_output_tokens=2)
    assert found.output
