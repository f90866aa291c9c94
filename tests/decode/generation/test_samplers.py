"""Typical p, XTC and DRY as arguments of `Model.generate`."""

import itertools
import json

import pytest

import tensor_ops_decode
from opened_models import opened_models
from tensor_ops_decode import FileFormatError

# The first one makes the model repeat a letter.
PROMPTS = ["mmmmmmmmm", "one two one two one", "été"]
SETTINGS = {"max_new_tokens": 16, "ignore_eos": True}
SAMPLERS = ("typical", "xtc", "dry")
CASES = {
    "typical": {"temperature": 1.5, "typical_p": 0.6},
    "xtc": {"temperature": 1.5, "xtc_probability": 0.7, "xtc_threshold": 0.03},
    "dry": {"dry_multiplier": 4.0, "dry_allowed_length": 1, "dry_base": 2.0},
    "all": {
        "temperature": 1.2, "typical_p": 0.9, "xtc_probability": 0.5, "dry_multiplier": 4.0,
        "dry_allowed_length": 1, "repetition_penalty": 1.2, "min_p": 0.01,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def models(folder):
    limits = {"max_num_batched_requests": 2, "max_num_batched_tokens": 8, "page_size": 8}
    with opened_models(folder, **limits) as model:
        yield model


@pytest.fixture
def model(models, backend):
    return models(backend)


@pytest.mark.parametrize("case", CASES)
def test_prompts_together_alone_and_streamed_are_answered_alike(model, case):
    settings = {**SETTINGS, **CASES[case]}
    together = model.generate(PROMPTS, seed=3, **settings)
    plain = {name: settings[name] for name in settings if not name.startswith(SAMPLERS)}
    assert together != model.generate(PROMPTS, seed=3, **plain)
    for number, prompt in enumerate(PROMPTS):
        assert model.generate(prompt, seed=3 + number, **settings) == [together[number]]
    with model.stream(PROMPTS[0], seed=3, **settings) as stream:
        assert "".join(stream) == together[0].text
    assert model.generate(PROMPTS[0], n=2, seed=3, **settings)[0] == together[0]


@pytest.mark.parametrize("case", CASES)
def test_guesses_change_no_token(models, model, case):
    settings = {**SETTINGS, **CASES[case]}
    guessing = models(model.kernel.backend, num_speculative_tokens=2)
    assert guessing.generate(PROMPTS[0], **settings) == model.generate(PROMPTS[0], **settings)


def test_a_constraint_holds_beside_them(model):
    pytest.importorskip("llguidance")
    for settings in CASES.values():
        (answer,) = model.generate("a", regex="[ab]{4}c?", **SETTINGS | settings)
        assert len(answer.text) >= 4
        assert set(answer.text) <= {*"abc"}


def test_texts_are_the_tokens_at_which_repetitions_end(model):
    prompt, given = "".join(PROMPTS), {**CASES["dry"], **SETTINGS}
    for texts, sequences in ((" ", [[32]]), (["wo", "n"], [[119, 111], [110]]), ([], [])):
        number = model.kernel.add_request(
            [*prompt.encode()], dry_sequence_breakers=sequences, **given
        )
        while model.kernel.requests:
            model.kernel.run(8)
        (answer,) = model.generate(prompt, dry_sequence_breakers=texts, **given)
        assert list(answer.tokens) == model.kernel.tokens(number)
        model.kernel.remove(number)


def test_nothing_is_repeated_where_the_penalty_is_large(model):
    def has_repeated(tokens):
        pairs = [*itertools.pairwise(tokens)]
        return len(pairs) > len({*pairs})

    settings = {"max_new_tokens": 60, "ignore_eos": True, "dry_base": 1, "dry_allowed_length": 1}
    (plain,), (dry,) = (
        model.generate(PROMPTS[0], dry_multiplier=each, dry_sequence_breakers=(), **settings)
        for each in (0, 1e6)
    )
    assert has_repeated(plain.tokens)
    assert not has_repeated(dry.tokens)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "dry_sequence_breakers must be a string or a sequence of strings, got 3"),
        (["a", 3], r"dry_sequence_breakers\[1\] is 3"),
        (["a", ""], "dry_sequence_breakers must be strings that are not empty"),
        (["\ud800"], r"dry_sequence_breakers\[0\] has a lone surrogate"),
        ([*map(str, range(65))], "dry_sequence_breakers must have 64 texts at most, got 65"),
        (["a", "é" * 21], r"dry_sequence_breakers\[1\] must have 40 bytes .* at most, got 42"),
    ],
)
def test_what_are_no_texts_is_an_error_before_any_work(model, given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        model.generate("a", dry_sequence_breakers=given)
    assert model.kernel.requests == ()


def test_a_model_without_tokenizer_takes_no_texts(folder, tmp_path, backend):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "typical_p": 0.5}), encoding="utf-8"
    )
    with tensor_ops_decode.load(tmp_path, backend) as model:
        assert model.defaults == {"temperature": 1.0, "top_k": 50, "typical_p": 0.5}
        (answer,) = model.generate([1, 2], **model.defaults | {"max_new_tokens": 3})
        assert answer.tokens
        with pytest.raises(FileFormatError, match=r"tokenizer\.json is missing"):
            model.generate([1, 2], dry_multiplier=0.8)
        model.generate([1, 2], dry_multiplier=0.8, dry_sequence_breakers=(), max_new_tokens=3)
