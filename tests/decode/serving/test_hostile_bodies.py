"""Bodies that no client should send: each is refused by a 4xx, and the server goes on."""

import json
import random

import httpx
import pytest

GOOD = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/embeddings": {"input": "a"},
    "/v1/responses": {"input": "a", "max_output_tokens": 1},
}
# Values that a field of any kind may not have.
STRANGE = [[], {}, [[]], [None], {"a": None}, "\ud800", -1, 1e400, 2**70, True, "x" * 3000]


def without_effect(field, value):
    """Return whether a value is right for a field, or the field changes nothing."""
    if field in ("store", "stream", "logprobs", "ignore_eos", "continue_final_message"):
        return value is True
    return field == "metadata" and isinstance(value, dict)


WRONG_FIELDS = [
    *("model", "n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias"),
    *("presence_penalty", "repetition_penalty", "penalty_last_n", "regex", "grammar"),
    *("max_tokens", "messages", "response_format", "tools", "tool_choice", "modalities"),
    *("chat_template_kwargs", "stream_options", "top_logprobs", "typical_p", "xtc_probability"),
]
RAW = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b'"\\ud800"',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"messages":' + b"[" * 50_000,
    b'{"messages":[{"role":"user","content":' + b"[" * 50_000,
    b'{"prompt":"a","prompt":1}',
    b'{"input":' + b"9" * 5000 + b"}",
    b"\0" * 1000,
    b'{"messages":[{"role":"user","content":"\\ud800"}]}',
    b'{"messages":[{"role":"user","content":"\xc3\x28"}]}',
]


def bodies():
    """Return 300 paths and bodies."""
    found = [(path, body) for path in GOOD for body in RAW]
    path = "/v1/chat/completions"
    for field in WRONG_FIELDS:
        found += [
            (path, json.dumps({**GOOD[path], field: value}).encode())
            for value in STRANGE
            if not without_effect(field, value)
        ]
    found += [
        (path, json.dumps({**body, "unknown": 1}).encode())
        for path, body in GOOD.items()
        for _ in (1,)
    ]
    for messages in (
        [],
        [{}],
        [{"role": "user"}],
        [{"role": "nobody", "content": "a"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": "a" * 2000}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
    ):
        found.append(("/v1/chat/completions", json.dumps({"messages": messages}).encode()))
    draw = random.Random(1)
    texts = [json.dumps(body).encode() for body in GOOD.values()]
    for depth in range(920, 1000, 2):
        nested = "[" * depth + "]" * depth
        tool = f'{{"messages":[{{"role":"user"}}],"tools":[{{"type":{nested}}}]}}'
        found.append(("/v1/chat/completions", tool.encode()))
    while len(found) < 300:
        number = draw.randrange(len(texts))
        text = bytearray(texts[number])
        text[draw.randrange(len(text))] = draw.choice(b'{}[]",:\0\x80\xff')
        found.append(([*GOOD][number], bytes(text)))
    return found


@pytest.fixture(scope="module")
def http(address):
    with httpx.Client(base_url=address, timeout=20) as http:
        yield http


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("responses", {"input": [{"type": "reasoning", "content": 5}]}, "an item of reasoning"),
        (
            "responses",
            {"input": [{"type": "reasoning", "content": [5]}]},
            "an item of reasoning",
        ),
        ("responses", {"input": [{"role": "user"}]}, "a message of the role 'user' needs content"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"self": 1}},
            "chat_template_kwargs cannot have self",
        ),
    ],
)
def test_what_is_wrong_is_said(http, path, body, says):
    done = http.post(f"/v1/{path}", json=body)
    assert done.status_code == 400
    assert says in done.json()["error"]["message"]


def test_hostile_bodies_are_refused(http):
    statuses = []
    for path, body in bodies():
        done = http.post(path, content=body)
        statuses.append(done.status_code)
        changed = body[:80]
        assert done.status_code < 500, (path, changed, done.text)
        if done.status_code >= 400:
            assert done.json()["error"]["message"], (path, changed)
    assert sum(400 <= status < 500 for status in statuses) >= 200, statuses
    for path, body in GOOD.items():
        assert http.post(path, json=body).status_code == 200
    assert http.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/v1/files", 404),
        ("GET", "/v1/models/%00", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
    ],
)
def test_other_paths_and_methods_are_refused(http, method, path, status):
    done = http.request(method, path)
    assert (done.status_code, done.json()["error"]["type"]) == (status, "invalid_request_error")


def test_a_body_that_is_too_long_is_refused_before_it_is_read(http):
    done = http.post("/v1/completions", content=b" " * ((8 << 20) + 1))
    assert (done.status_code, done.json()["error"]["message"]) == (
        413,
        "the body is longer than 8388608 bytes",
    )

    def pieces():
        for _ in range(9):
            yield b" " * (1 << 20)

    assert http.post("/v1/completions", content=pieces()).status_code == 413
