import random

import pytest

from tensor_ops_decode.scheduling.prompt_lookup import PromptLookup


@pytest.mark.parametrize(
    ("tokens", "guesses"),
    [
        ([], []),
        ([1, 2, 3], []),
        ([1, 2, 3, 1, 2], []),
        ([1, 2, 3, 4, 1, 2, 3], [4, 1, 2, 3]),
        ([7, 7, 7, 7], [7, 7, 7, 7]),
        ([1, 2, 3, 5, 1, 2, 3, 6, 1, 2, 3], [6, 1, 2, 3]),  # the last place counts
    ],
)
def test_guesses_are_what_followed_the_last_tokens(tokens, guesses):
    assert PromptLookup().propose(tokens, 4) == guesses


def test_a_growing_sequence_has_the_guesses_of_a_new_one():
    draw = random.Random(0)
    tokens, lookup = [], PromptLookup(length=2)
    for _ in range(200):
        tokens += draw.choices(range(4), k=draw.randrange(4))
        assert lookup.propose(tokens, 3) == PromptLookup(length=2).propose(tokens, 3)
