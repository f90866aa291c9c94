"""Perplexity: as llama.cpp defines it, from the logits of transformers; and the command."""

import json
import math

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import tensor_ops_decode
from tensor_ops_decode import perplexity

TEXT = "The harbour was empty when the ferry came in. Two boys sat on the wall and counted crates."
CONTEXT = 11


@pytest.fixture
def model(folder, backend):
    with tensor_ops_decode.load(folder, backend, max_num_batched_requests=3) as model:
        yield model


def by_definition(folder, tokens, bos=None):
    """Return the perplexity by the logits of transformers, its error, and how many were scored."""
    torch_model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    scored = []
    for start in range(0, len(tokens) - CONTEXT + 1, CONTEXT):
        chunk = tokens[start : start + CONTEXT]
        given = [bos if bos is not None else chunk[0], *chunk[1:]]
        with torch.no_grad():
            found = torch_model(torch.tensor([given])).logits[0].log_softmax(-1).numpy()
        half = range(CONTEXT // 2, CONTEXT - 1)
        scored += [-found[position, chunk[position + 1]] for position in half]
    count, mean = len(scored), np.mean(scored)
    deviation = math.sqrt((np.mean(np.square(scored)) - mean**2) / (count - 1))
    return math.exp(mean), math.exp(mean) * deviation, count


def test_it_is_that_of_the_second_half_of_each_chunk(model, folder):
    seen = []
    found = perplexity(model, TEXT, context=CONTEXT, progress=lambda *each: seen.append(each))
    tokens = list(TEXT.encode())
    value, error, count = by_definition(folder, tokens)
    assert found.value == pytest.approx(value, rel=1e-4)
    assert found.error == pytest.approx(error, rel=1e-4)
    chunks = len(TEXT) // CONTEXT
    assert (found.num_scored, found.num_chunks, found.context) == (count, chunks, CONTEXT)
    assert seen == [(number + 1, chunks) for number in range(chunks)]
    assert perplexity(model, tokens, context=CONTEXT) == found


def test_the_token_that_begins_a_text_begins_each_chunk(model, folder, monkeypatch):
    monkeypatch.setattr(model.tokenizer, "bos", 5)
    monkeypatch.setattr(model.tokenizer, "adds_bos", True)
    tokens = list(TEXT.encode())
    found = perplexity(model, tokens, context=CONTEXT)
    value, error, _ = by_definition(folder, tokens, bos=5)
    assert (found.value, found.error) == pytest.approx((value, error), rel=1e-4)


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        (TEXT, 46, f"the text has {len(TEXT)} tokens, expected two chunks of 46"),
        ("", 4, "the text has 0 tokens, expected two chunks of 4 at least"),
        (TEXT, 3, "context must be .*, got 3"),
        ("\ud800" * 20, 4, "text has a lone surrogate"),
        ([1, 2, 3, 999] * 9, 4, "tokens must be from 0 to 259, got 999"),
    ],
)
def test_what_has_none_is_named(model, text, context, words):
    with pytest.raises(ValueError, match=words):
        perplexity(model, text, context=context)


def test_the_command_prints_it(run, folder, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT + "\n", encoding="utf-8")
    words = [folder, file, "--context", CONTEXT, "--backend=python"]
    record = json.loads(run("perplexity", *words, "--json").stdout)
    with tensor_ops_decode.load(folder, "python") as model:
        found = perplexity(model, TEXT, context=CONTEXT)
    assert record == pytest.approx(vars(found))
    shown = run("perplexity", *words).stdout
    assert shown.startswith(f"perplexity {found.value:.4f} +/- {found.error:.5f}, 40 tokens of 8")


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (b"\xff\xfe", [], "the text is not UTF-8"),
        (b"short", [], "expected two chunks of 512"),
        (b"x" * 99, ["--context=0"], "max_seq_length must be"),
        (None, [], "No such file"),
    ],
)
def test_the_command_says_what_is_wrong(run, folder, tmp_path, content, words, said):
    file = tmp_path / "text.txt"
    if content is not None:
        file.write_bytes(content)
    done = run("perplexity", folder, file, "--backend=python", *words)
    assert done.returncode not in (0, None)
    assert said in done.stderr
