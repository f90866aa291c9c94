"""Stop strings: where transformers ends an answer, what is its text, and what many of them cost."""

import random
import time

import pytest

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizer_files import MERGES, byte_level_names, sentence_piece_names  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers  # noqa: E402

from tensor_ops_decode.generation.answer import Answer  # noqa: E402
from tensor_ops_decode.generation.stop_strings import StopStrings  # noqa: E402
from tensor_ops_decode.text import Tokenizer  # noqa: E402

SPECIAL = ["<s>", "</s>", "<|end|>", "<|x"]
# Tokens between the special ones: parts of characters, and spaces before words.
SAID = {
    "bytes": ["h", "e", "l", "hell", "hello", "Ġhello", "12", "Ġ", "x", "Ã", "©", "<tool>"],
    "pieces": ["h", "e", "l", "o", "▁", "▁the", "he", "▁hello", "<0x0A>", "<tool>"],
}


def build(kind):
    """Return a tokenizer of a kind with special tokens, and one token that is not special."""
    if kind == "bytes":
        names = [name for name in byte_level_names() if name not in ("<|end|>", "<u>")]
        merges = [tuple(merge.split()) for merge in MERGES]
        made = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    else:
        numbers = {name: i for i, name in enumerate(sentence_piece_names())}
        model = models.BPE(numbers, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
        made = tokenizers.Tokenizer(model)
        made.normalizer = normalizers.Replace(" ", "▁")
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    made.add_special_tokens(SPECIAL)
    made.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    return made


@pytest.fixture(scope="module", params=SAID)
def both(request):
    """Our tokenizer, that of transformers, and a function that draws tokens which both know."""
    made = build(request.param)
    said, special = (
        [made.token_to_id(name) for name in names] for names in (SAID[request.param], SPECIAL)
    )

    def drawn(draw, count):
        return [draw.choice(special if draw.random() < 0.25 else said) for _ in range(count)]

    ours = Tokenizer(made, bos=None, eos=made.token_to_id("</s>"))
    return ours, transformers.PreTrainedTokenizerFast(tokenizer_object=build(request.param)), drawn


def answered(tokenizer, stops, tokens, last="length"):
    """Return the answer that these tokens make one by one, and the pieces of its text."""
    pieces = []
    request = {"logprobs": None}
    answer = Answer(0, [0], request, tokenizer, stops, lambda _, piece: pieces.append(piece))
    answer.start()
    for count in range(1, len(tokens) + 1):
        answer.add(tokens[:count], last if count == len(tokens) else None)
        if answer.finish_reason is not None:
            break
    return answer.completion(), pieces


def test_an_answer_ends_with_the_token_with_which_transformers_ends_it(both):
    ours, theirs, drawn = both
    draw, stopped = random.Random(0), 0
    for _ in range(80):
        texts = [ours.decode(drawn(draw, 3), skip_special_tokens=False) for _ in range(3)]
        starts = [draw.randrange(max(len(text), 1)) for text in texts]
        stops = [
            text[start : start + draw.randint(1, 8)]
            for text, start in zip(texts, starts, strict=True)
            if text and "\ufffd" not in text
        ]
        if not stops:
            continue
        criteria = transformers.StopStringCriteria(theirs, stops)
        shared = StopStrings(stops)
        for _ in range(8):
            tokens = drawn(draw, 16)
            ends = [bool(criteria(torch.tensor([tokens[:i]]), None)[0]) for i in range(1, 17)]
            expected = ends.index(True) + 1 if any(ends) else len(tokens)
            answer, pieces = answered(ours, shared, tokens)
            assert (len(answer.tokens), answer.finish_reason == "stop") == (expected, any(ends))
            assert "".join(pieces) == answer.text
            # Before the stop string there is the text of all tokens, without special ones.
            whole = ours.decode(answer.tokens)
            assert whole.startswith(answer.text)
            assert any(ends) or answer.text == whole
            stopped += any(ends)
    assert stopped > 100


@pytest.mark.parametrize(
    ("stop", "text", "count"),
    [
        ("<|end|>", "hellohe", 3),
        ("<|end|>l", "hellohe", 4),
        ("he<|end|>", "hello", 3),
        ("e<|end", "helloh", 3),
        ("d|>l", "hellohe", 4),
        ("hel", "", 1),
        ("lhello", "hellohe", 5),
        ("</s>", "hellohelhello", 6),
        ("hello</s>", "hellohel", 6),
        ("never", "hellohelhello", 6),
    ],
)
def test_a_stop_string_may_reach_over_names(stop, text, count):
    made = build("bytes")
    ours = Tokenizer(made, bos=None, eos=made.token_to_id("</s>"))
    names = ["hello", "he", "<|end|>", "l", "hello", "</s>"]
    answer, pieces = answered(ours, StopStrings([stop]), [*map(made.token_to_id, names)], "stop")
    assert (answer.text, len(answer.tokens), answer.finish_reason) == (text, count, "stop")
    assert "".join(pieces) == text


def test_text_that_only_looks_like_the_name_of_a_special_token_ends_an_answer_too(both):
    ours, *_ = both
    tokens = ours.encode("he<|end|>he")
    assert not any(map(ours.is_special, tokens))
    answer, _ = answered(ours, StopStrings(["<|end|>"]), tokens)
    assert (answer.text, answer.finish_reason) == ("he", "stop")


def test_text_is_held_back_no_longer_than_it_may_be_of_a_stop_string():
    made = build("bytes")
    ours = Tokenizer(made, bos=None, eos=None)
    tokens = [*map(made.token_to_id, ["hello", "<|end|>", "x", "l", "<s>", "e", "hello"])]
    _, pieces = answered(ours, StopStrings(["<|end|>xl</s>"]), tokens)
    assert pieces == ["hello", "xl", "e", "hello"]


def test_a_hundred_thousand_stop_strings_cost_a_token_nearly_nothing():
    draw = random.Random(0)
    stops = ["".join(draw.choices("abcdefgh{}[]\n", k=20)) for _ in range(100_000)]
    made = build("bytes")
    ours = Tokenizer(made, bos=None, eos=None)
    tokens = [draw.randrange(200) for _ in range(300)]
    start = time.perf_counter()
    answer, _ = answered(ours, StopStrings([*stops, "a" * 1_000_000]), tokens)
    assert answer.finish_reason == "length"
    assert time.perf_counter() - start < 10  # a look at each of them takes a minute
