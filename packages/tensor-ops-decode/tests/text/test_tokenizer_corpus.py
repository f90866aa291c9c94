"""Every family's tokenizer beside transformers': equal tokens, equal text, whatever the text."""

import json
import random

import pytest

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from tokenizer_corpus import corpus  # noqa: E402
from tokenizer_files import assert_streams_as_decoded, write_gguf  # noqa: E402
from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from tensor_ops_decode.text import open_tokenizer  # noqa: E402

SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>"]
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = CL100K.replace("{1,3}", "")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = TEKKEN.replace("]+|[^", f"]+{ENDINGS}|[^").replace(
    r"]*|\p{N}|", rf"]*{ENDINGS}|\p{{N}}{{1,3}}|"
)
# The tokenizer.json of a model of each family: normalizer, pre-tokenizers, ignore_merges.
BYTE_LEVEL = {
    "gpt-2": (None, [], False),
    "smollm": (None, [pre_tokenizers.Digits(individual_digits=True)], False),
    "llama-bpe": (None, [CL100K], True),
    "dbrx": (None, [CL100K], False),
    "qwen2": (normalizers.NFC(), [QWEN2], False),
    "tekken": (None, [TEKKEN], True),
    "gpt-4o": (None, [GPT4O], False),
}


@pytest.fixture(scope="module")
def trained():
    """The names and merges of a byte-level vocabulary whose tokens are any pieces of text.

    It is trained without a pattern, so that tokens reach across what patterns cut.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=3000,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        max_token_length=12,
    )
    short = [text[:80] for text in corpus()]
    tokenizer.train_from_iterator([*short, *(text.lower() for text in short)], trainer)
    return vocabulary(tokenizer)


def vocabulary(tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    return names, [tuple(merge) for merge in model["merges"]]


def numbered(names):
    return {name: token for token, name in enumerate(names)}


def reference(tokenizer):
    """The tokenizer that transformers makes of a tokenizer.json."""
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def assert_equal(ours, theirs, texts):
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    for text, tokens in zip(texts, expected, strict=True):
        given = ours.encode(text, add_special_tokens=False, parse_special_tokens=True)
        assert given == tokens, text
    draw = random.Random(0)
    tokens = [token for tokens in expected for token in tokens]
    broken = [draw.choices(tokens, k=12) for _ in range(300)]  # bytes that are no UTF-8
    broken += [draw.choices(range(ours.vocab_size), k=12) for _ in range(300)]
    for some in [*expected[::4], *broken]:
        for skip in (True, False):
            text = ours.decode(some, skip_special_tokens=skip)
            assert text == theirs.decode(some, skip_special_tokens=skip), some
        assert_streams_as_decoded(ours, some)


@pytest.mark.parametrize("pre", BYTE_LEVEL)
def test_byte_level_tokenizers_are_equal_to_transformers(pre, trained, tmp_path):
    names, merges = trained
    normalizer, patterns, ignore_merges = BYTE_LEVEL[pre]
    tokenizer = Tokenizer(models.BPE(numbered(names), merges, ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    splits = [
        pre_tokenizers.Split(Regex(each), "isolated") if isinstance(each, str) else each
        for each in patterns
    ]
    own = pre in ("gpt-2", "smollm")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    file = write_gguf(
        tmp_path / "a.gguf",
        pre=pre,
        names=names,
        merges=[" ".join(merge) for merge in merges],
        kinds=[3 if name in SPECIAL else 1 for name in names],
    )
    assert_equal(open_tokenizer(file), reference(tokenizer), corpus())


def test_a_tokenizer_of_gemma_4_is_equal_to_transformers(tmp_path):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
    bytes_of_all = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=2500,
        special_tokens=[*specials, *bytes_of_all],
        limit_alphabet=500,
        show_progress=False,
        max_token_length=12,
    )
    tokenizer.train_from_iterator([text[:80] for text in corpus()], trainer)
    names, merges = vocabulary(tokenizer)
    made = transformers.GemmaTokenizer(vocab=numbered(names), merges=merges)
    made.add_special_tokens({"additional_special_tokens": ["<|turn>", "<turn|>"]})
    file = write_gguf(
        tmp_path / "a.gguf",
        architecture="gemma4",
        model="gemma4",
        pre=None,
        names=[*names, "<mask>"],
        merges=[" ".join(merge) for merge in merges],
        kinds=[3] * len(specials) + [6] * 256 + [1] * (len(names) - len(specials) - 256) + [3],
        unknown_token_id=3,
        bos_token_id=2,
        eos_token_id=1,
        add_space_prefix=False,
    )
    assert_equal(open_tokenizer(file), reference(made.backend_tokenizer), corpus())


@pytest.fixture(scope="module")
def pieces():
    """The names and scores of a vocabulary like SentencePiece's, its tokens best first."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=specials,
        limit_alphabet=500,
        show_progress=False,
        max_token_length=8,
    )
    tokenizer.train_from_iterator([text[:80] for text in corpus()], trainer)
    names, _ = vocabulary(tokenizer)
    characters = [name for name in names if len(name) == 1]
    merged = [name for name in names if len(name) > 1 and name not in specials]
    return specials, merged, characters


SENTENCE_PIECE = {"llama": (True, []), "phi3": (True, []), "gemma3": (False, ["<table>", "\n\n"])}


@pytest.mark.parametrize("architecture", SENTENCE_PIECE)
def test_sentence_piece_tokenizers_are_equal_to_transformers(architecture, pieces, tmp_path):
    merges_of = transformers.tokenization_utils_base.generate_merges
    adds_space, defined = SENTENCE_PIECE[architecture]
    specials, merged, characters = pieces
    if not adds_space:
        # Gemma has runs of spaces, which are the first to be merged, and a part of no other token.
        merged = [name for name in merged if not any(part in name for part in ["▁▁", *defined])]
        runs = ["▁" * length for length in range(2, 32)]
    else:
        runs = []
    controls = ["<|user|>", "<|end|>"]
    names = [*specials, *defined, *runs, *merged, *characters, *controls]
    vocab = numbered(names)
    scores = {name: -float(i) for i, name in enumerate(names)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab,
            merges_of(vocab, {name: scores[name] for name in [*runs, *merged, *characters]}),
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    before = [normalizers.Prepend("▁")] if adds_space else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if adds_space else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    swallows = {"</s>", *controls} if architecture == "phi3" else set()
    tokenizer.add_special_tokens(
        [
            AddedToken(name, rstrip=name in swallows, normalized=False, special=True)
            for name in [*specials[:3], *controls]
        ]
    )
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in defined])
    kinds = [2, 3, 3, *[6] * 256, *[4] * (len(defined) + len(runs))]
    kinds += [1] * (len(merged) + len(characters)) + [3] * len(controls)
    file = write_gguf(
        tmp_path / "a.gguf",
        architecture=architecture,
        model="llama",
        pre="default",
        names=[name.replace("▁", " ") if name in runs else name for name in names],
        merges=None,
        kinds=kinds,
        scores=[scores[name] for name in names],
        add_space_prefix=adds_space,
    )
    texts = corpus()
    if runs:
        # In longer runs than there is a token for, SentencePiece takes the longest first, and so
        # does this package; BPE, as transformers has it, joins halves.
        texts = [text for text in texts if runs[-1] + "▁" not in text.replace(" ", "▁")]
    assert_equal(open_tokenizer(file), reference(tokenizer), texts)
