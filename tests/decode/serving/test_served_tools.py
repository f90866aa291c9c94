"""Tools, reasoning and schemas over HTTP, with models of random weights that must call one."""

import json

import jsonschema
import openai
import pytest

import tensor_ops_decode
from byte_models import save_model
from running_server import running_server
from tool_templates import TEMPLATES, TOOLS

NAMES = ["hermes", "xml", "llama", "named"]
THINKING = ["hermes", "xml"]
MESSAGES = [{"role": "user", "content": "Weather?"}]
SCHEMAS = {each["function"]["name"]: each["function"].get("parameters", {}) for each in TOOLS}


@pytest.fixture(scope="module", params=NAMES)
def client(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    save_model(folder, positions=2048, template=TEMPLATES[request.param])
    with (
        tensor_ops_decode.load(folder, max_num_batched_requests=2) as model,
        running_server(model, "bytes") as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def given(**more):
    return {"model": "bytes", "messages": MESSAGES, "tools": TOOLS, "seed": 3, **more}


def check(calls):
    for call in calls:
        arguments = json.loads(call.function.arguments)
        jsonschema.validate(arguments, SCHEMAS[call.function.name])


@pytest.mark.parametrize("name", [None, *SCHEMAS])
def test_a_call_that_is_required_is_valid(client, name):
    choice = "required"
    if name is not None:
        choice = {"type": "function", "function": {"name": name}}
    how = given(tool_choice=choice, parallel_tool_calls=False, max_tokens=900)
    how["extra_body"] = {"chat_template_kwargs": {"enable_thinking": False}}
    # No thoughts, which begin with <th, and short numbers: both may go on for ever.
    how["logit_bias"] = {str(ord("h")): -100} | {str(ord(each)): -4 for each in "0123456789"}
    (found,) = client.chat.completions.create(**how).choices
    assert found.finish_reason == "tool_calls"
    (call,) = found.message.tool_calls
    assert name in (None, call.function.name)
    check([call])
    streamed, text = {}, ""
    for chunk in client.chat.completions.create(stream=True, **how):
        (choice,) = chunk.choices
        text += choice.delta.content or ""
        for piece in choice.delta.tool_calls or ():
            if piece.id:
                assert piece.type == "function"
                streamed[piece.index] = [piece.function.name, ""]
            streamed[piece.index][1] += piece.function.arguments or ""
    assert choice.finish_reason == "tool_calls"
    assert (streamed, text) == (
        {0: [call.function.name, call.function.arguments]},
        found.message.content or "",
    )


def test_the_conversation_goes_on_with_the_result(client):
    call = {"name": "now", "arguments": "{}"}
    messages = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
    ]
    lengths = [
        client.chat.completions.create(
            **given(messages=messages[:count], max_tokens=1)
        ).usage.prompt_tokens
        for count in (1, 2, 3)
    ]
    # Each message has its text in the prompt, and the call the name of its tool.
    assert lengths[1] - lengths[0] > len("now")
    assert lengths[2] - lengths[1] > len("noon")


def test_tools_that_must_not_be_called_are_not_shown(client):
    with_tools, without = (
        client.chat.completions.create(**given(max_tokens=3, **how)).usage.prompt_tokens
        for how in ({"tool_choice": "none"}, {"tools": openai.omit})
    )
    assert with_tools == without


def test_responses_have_calls_as_items(client, request):
    if request.node.callspec.params["client"] in THINKING:
        pytest.skip("the model may think for ever")
    tools = [{"type": "function", **each["function"]} for each in TOOLS]
    found = client.responses.create(
        model="bytes",
        input="Time?",
        tools=[*tools, {"type": "web_search"}],
        tool_choice={"type": "function", "name": "now"},
        parallel_tool_calls=False,
        temperature=0,
    )
    calls = [item for item in found.output if item.type == "function_call"]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("now", {})]
    output = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "noon"}
    items = ["Time?", *found.output, output]
    items[0] = {"role": "user", "content": items[0]}
    how = {"model": "bytes", "tools": tools, "max_output_tokens": 2}
    last = client.responses.create(input=items, **how)
    assert last.usage.input_tokens > found.usage.input_tokens + len("noon")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tools": [{"type": "web_search"}]}, "a tool must have the type 'function'"),
        ({"tools": [{"type": "function", "function": {}}]}, "a tool needs a name"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "two tools have the same name"),
        ({"tool_choice": "always"}, "tool_choice must be 'none', 'auto', 'required' or name"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "no tool has the name 'f'",
        ),
        ({"tools": openai.omit, "tool_choice": "required"}, "tool_choice needs tools"),
        (
            {"tool_choice": "required", "response_format": {"type": "json_object"}},
            "a call that tool_choice requires has no other form",
        ),
    ],
)
def test_wrong_tools_are_refused(client, more, says):
    with pytest.raises(openai.BadRequestError, match=says):
        client.chat.completions.create(**given(max_tokens=1, **more))


def test_a_model_without_tools_says_so(tmp_path):
    save_model(tmp_path)
    with (
        tensor_ops_decode.load(tmp_path) as model,
        running_server(model, "bytes") as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="chat template writes no calls of tools"),
    ):
        client.chat.completions.create(**given(max_tokens=1))
