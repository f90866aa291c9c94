"""Names of special tokens in texts: which are found and broken, and what long names cost."""

import random
import tracemalloc

import pytest

from tensor_ops_decode.text.special_names import SpecialNames

MARK = "\U000f0000"


def generated(alphabet, longest, count, draw):
    lengths = [draw.randint(1, longest) for _ in range(count)]
    return ["".join(draw.choice(alphabet) for _ in range(length)) for length in lengths]


@pytest.mark.parametrize("alphabet", ["ab", "aA<", "<|a>", "Kk\u212a"])
def test_the_longest_names_are_found_from_the_left(alphabet):
    draw = random.Random(alphabet)
    for _ in range(100):
        special, others = (generated(alphabet, 5, count, draw) for count in (4, 2))
        names = SpecialNames(special, others)
        for text in generated(alphabet + " ", 14, 5, draw):
            expected, place = [], 0
            while place < len(text):
                found = [each for each in special + others if text.startswith(each, place)]
                longest = max(found, key=len, default=" ")
                if longest in special:
                    expected.append((place, place + len(longest)))
                place += len(longest)
            assert names.places(text) == expected


@pytest.mark.parametrize("alphabet", ["ab", "aA<", "<|a>"])
def test_nothing_joins_broken_texts_to_a_name(alphabet):
    draw = random.Random(alphabet)
    for _ in range(100):
        special = [f"<{name}" for name in generated(alphabet, 4, 4, draw)]
        names, folded = SpecialNames(special), [name.lower() for name in special]
        for text in generated(alphabet + "< ", 10, 5, draw):
            broken = names.broken(text, MARK)
            assert broken.replace(MARK, "") == text
            for other in generated(alphabet + "<", 4, 5, draw):
                for before, after in ((other, ""), ("", other)):
                    start, end = len(before), len(before) + len(broken.strip())
                    joined = (before + broken.strip() + after).lower()
                    for name in folded:
                        places = [i for i in range(len(joined)) if joined.startswith(name, i)]
                        assert all(i + len(name) <= start or i >= end for i in places)


def test_a_long_name_takes_no_more_memory_than_its_length_asks_for():
    tracemalloc.start()
    try:
        names = SpecialNames(["<" + "a" * 10_000 + ">"])
        text = "a <b> " * 100 + "<" + "a" * 10_000
        assert names.places(text) == []
        assert names.broken(text, MARK).count(MARK) == 1
        assert tracemalloc.get_traced_memory()[1] < 2e6
    finally:
        tracemalloc.stop()


def test_a_name_of_a_million_characters_is_found_in_long_texts():
    name = "<" + "a" * 1_000_000 + ">"
    names = SpecialNames([name, *(f"<|{number}|>" for number in range(1000))])
    text = "<b> <|12|> " * 50_000 + name
    assert len(names.places(text)) == 50_001
    assert names.broken(text, MARK).count(MARK) == 50_001
