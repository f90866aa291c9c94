"""A corpus of what texts can be: every script, emoji, spaces, numbers, code, and no text at all."""

import random
import sys
import unicodedata
from collections import defaultdict
from functools import cache

__all__ = ["corpus"]

CODE = """\
def f(x: int = 0x1F) -> "str":
\treturn {'a': [1, 2], "b": x ** 2}  # no-op\r\n
    if (a<=b && c!=d) { e->f(); } // g
SELECT * FROM t WHERE a_b = 'it''s' AND c >= 1e-5;
<p class="x">&amp;</p>\t\t\\n \\u0041 $HOME/%s/../~ @@@ ### ===== -----
https://example.org/a?b=c&d=%20#e user@example.org C:\\dir\\file.txt #!/bin/sh
"""
EMOJI = [
    "🙂", "🙂🙂", "👨\u200d👩\u200d👧\u200d👦", "👍🏽👍🏿", "🇩🇪🇫🇷🇩", "1\ufe0f\u20e3#\ufe0f\u20e3",
    "❤\ufe0f❤", "🏴\U000e0067\U000e0062\U000e007f", "👩🏾\u200d🚀 a👩\u200d🚀b",
    "\u200d\ufe0f", "a🙂b 🙂 c",
]  # fmt: skip
WORDS = [
    "don't DON'T I'll WE'VE they're it's 'tis o'clock d'accord l'été 'S '\u017f \u2019s",
    "MiXeD CamelCase",
    "ABCdefGHI aB Ab ABc ǅungla ʰa ªb İstanbul ıŞ ß ẞ ﬁne", "_snake_case kebab-case a.b.c",
    "Hello  world   again    ", "a" * 2000, "ab" * 900 + "é", "!" * 300, "é" * 300, "中" * 300,
    "..." * 50, "a-b" * 100, "\u0301" * 200, "x" + "\u0308\u0323" * 40, "trailing ", " leading",
    "a//b ///\n/", "!\n\n?\r\n\r", "\\n", "▁ ▁▁ a▁b ▁", "<0x41> <0xFF>", "<unk> <s> </s> [UNK]",
]  # fmt: skip
DIGITS = [
    "1234567890" * 3,
    "٠١٢٣٤٥",
    "१२३४",
    "½⅓²³Ⅷ①㊿",
    "3.14159 1,000,000 1e-5 0xFF 007",
    "\U0001d7d8\U0001d7d9",
]
SPACES = [
    " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\x85",
]  # fmt: skip
NO_TEXT = [
    "\x00", "a\x00b\x00\x00", "\x01\x02\x1b[31m\x7f\x80\x85", "\ue000\uf8ff\U000f0000\U0010fffd",
    "\ufdd0\ufffe\uffff\U0001ffff\U0010ffff", "\u0378\u0530\U000e0080\U0003fffd", "\ufeffBOM\ufffd",
    "\u202eabc\u202c \u2066אבג\u2069 \u200fعربي\u200e 123", "\u2028\u2029\x0b\x0c\x1c\x1d\x1e\x1f",
]  # fmt: skip


@cache
def corpus():
    """Return the texts, of which none is surrogates, since these are no characters."""
    draw = random.Random(0)
    texts = ["", *CODE.splitlines(keepends=True), CODE, *EMOJI, *WORDS, *DIGITS, *NO_TEXT]
    texts += [_of_script(draw, characters) for characters in _scripts().values()]
    texts += [_of_spaces(draw) for _ in range(40)]
    texts += ["7" * length for length in range(1, 12)]
    everything = sorted(set("".join(texts)))
    for _ in range(120):
        texts.append("".join(draw.choices(everything, k=draw.randrange(40))))
        texts.append("".join(draw.choice(draw.choice(texts) or " ") for _ in range(30)))
    texts.append("\n".join(texts[:200]))
    return texts


def _scripts():
    """Return the characters of each script, which begins their names, for want of a table."""
    scripts = defaultdict(list)
    for code in range(0x80, sys.maxunicode + 1):
        name = unicodedata.name(chr(code), "")
        if name:
            scripts[name.split(" ", 1)[0]].append(chr(code))
    return {script: some for script, some in scripts.items() if len(some) > 7}


def _of_script(draw, characters):
    """Return a text of all kinds of characters of a script, in words and beside others."""
    kinds = defaultdict(list)
    for character in characters:
        kinds[unicodedata.category(character)].append(character)
    some = [
        character for kind in kinds.values() for character in draw.sample(kind, min(4, len(kind)))
    ]
    draw.shuffle(some)
    word = "".join(some)
    return f"{word} {word[:3]}1 {word[3:6].upper()}-a{word[-2:]}\n{' '.join(some[:5])}"


def _of_spaces(draw):
    text = "".join(
        "".join(draw.choices(SPACES, k=draw.randrange(6))) + draw.choice(["a", "B.", "1", "中"])
        for _ in range(6)
    )
    return text + draw.choice(SPACES) * draw.randrange(31)
