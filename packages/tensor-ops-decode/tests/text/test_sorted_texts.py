"""Texts in order: what is found in and after another text is what a look at each of them finds."""

import random

from tensor_ops_decode.text.sorted_texts import SortedTexts


def test_what_is_found_is_what_a_look_at_each_text_finds():
    draw = random.Random(0)

    def text(longest):
        return "".join(draw.choice("ab") for _ in range(draw.randint(1, longest)))

    for shared in ("", "a" * 70):  # longer than what is compared first
        for _ in range(200):
            texts = [shared + text(6) for _ in range(draw.randint(0, 8))]
            found = SortedTexts(texts)
            assert found.longest == max(map(len, texts), default=0)
            for _ in range(20):
                other, start = "b" + shared + text(10), draw.randint(0, 2)
                rest = other[start:]
                lengths = [len(each) for each in texts if rest.startswith(each)]
                assert found.length_in(other, start) == max(lengths, default=0)
                longer = [each for each in texts if each.startswith(rest) and each != rest]
                assert found.go_on_after(other, start) == bool(longer)
