"""Completions that fill a gap, and what is refused by name."""

import httpx
import pytest
import tokenizers

import tensor_ops_decode
from byte_models import save_model
from running_server import running_server

NAMES = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


def test_a_suffix_makes_a_prompt_of_three_parts(tmp_path):
    save_model(tmp_path, vocabulary=264)
    path = tmp_path / "tokenizer.json"
    made = tokenizers.Tokenizer.from_file(str(path))
    made.add_special_tokens(NAMES)
    made.save(str(path))
    first, second, third = map(made.token_to_id, NAMES)
    tokens = [first, *b"def f(", second, *b"): pass", third]
    with (
        tensor_ops_decode.load(tmp_path) as model,
        running_server(model, "bytes") as address,
    ):
        (expected,) = model.generate([tokens], max_new_tokens=6)
        body = {"suffix": "): pass", "max_tokens": 6, "temperature": 0}
        for prompt in ("def f(", [*b"def f("], ["def f("]):
            done = httpx.post(f"{address}/v1/completions", json={**body, "prompt": prompt}).json()
            assert done["choices"][0]["text"] == expected.text
            assert done["usage"]["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(
    ("path", "field", "value", "says"),
    [
        ("completions", "suffix", "x", "suffix needs a model with tokens for filling in"),
        ("completions", "echo", True, "echo=True is not supported; leave it out"),
        ("completions", "best_of", 3, "best_of=3 is not supported"),
        ("completions", "max_tokens", 0, "max_tokens must be 1 or larger"),
        ("completions", "prompt", [], "prompt is an empty list; give a text"),
        ("completions", "prompt", [1, "a"], "a prompt must be a text or token ids"),
        ("completions", "logit_bias", {"a": 1}, "logit_bias must name tokens by their numbers"),
        ("chat/completions", "audio", {}, "audio is not supported; leave it out"),
        ("chat/completions", "modalities", ["audio"], r"modalities must be ['text']"),
        ("chat/completions", "top_logprobs", 2, "top_logprobs needs logprobs=true"),
        ("responses", "background", True, "background=true is not supported"),
        ("responses", "truncation", "auto", "truncation must be 'disabled'"),
        ("responses", "conversation", "c", "the server keeps no conversations"),
        ("responses", "input", [{"type": "item_reference"}], "an item of type 'item_reference'"),
        ("embeddings", "input", [], "input must have 1 to 2048 texts, got 0"),
        ("embeddings", "model", "other", "there is no model 'other'; this server has 'bytes'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(address, path, field, value, says):
    good = {
        "completions": {"prompt": "a"},
        "chat/completions": {"messages": [{"role": "user", "content": "a"}]},
        "responses": {"input": "a"},
        "embeddings": {"input": "a"},
    }
    done = httpx.post(f"{address}/v1/{path}", json={**good[path], field: value})
    assert done.status_code in (400, 404)
    assert says in done.json()["error"]["message"]
