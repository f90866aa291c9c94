"""DRY: its penalties beside those of its definition, and the sequences at which repetitions end."""

import random

import numpy as np
import pytest

from tensor_ops_decode.scheduling.dry import SequenceBreakers, longest_repetitions, penalties
from tensor_ops_decode.scheduling.sampling import Sampling


def penalized(tokens, allowed, breakers):
    """Return how long a repetition each penalized token would go on with, by comparing all."""
    count, alone = len(tokens), {each[0] for each in breakers if len(each) == 1}
    most = count
    for first in reversed(range(count)):
        found = [each for each in breakers if tuple(tokens[first : first + len(each)]) == each]
        if found:
            most = count - first - max(map(len, found))
            break
    repeated = {}
    for end in range(1, count):
        before, last = reversed(tokens[:end]), reversed(tokens)
        equal = [one == other for one, other in zip(before, last, strict=False)]
        length = min([*equal, False].index(False), most)
        if length >= allowed:
            repeated[tokens[end]] = max(repeated.get(tokens[end], 0), length)
    if count <= allowed or most < allowed:
        return {}
    return {token: length for token, length in repeated.items() if token not in alone}


def test_penalties_are_those_of_the_definition():
    draw = random.Random(1)
    for _ in range(1_500):
        kinds = draw.choice([1, 2, 3, 6])
        tokens = draw.choices(range(kinds), k=draw.randint(0, 30))
        breakers = {
            tuple(draw.choices(range(kinds + 3), k=draw.randint(1, 3)))
            for _ in range(draw.randint(0, 3))
        }
        allowed, base = draw.randint(0, 4), draw.choice([1.0, 1.25, 2.0])
        expected = {
            token: 0.5 * base ** (length - allowed)
            for token, length in penalized(tokens, allowed, breakers).items()
        }
        found = penalties(tokens, 0.5, base, allowed, SequenceBreakers(breakers))
        assert {token: float(each) for token, each in found.items()} == pytest.approx(expected)


def test_the_exponent_is_at_most_the_one_whose_power_float32_holds():
    # llama.cpp truncates 88.7228391 / log(base).
    for base, most in ((1.75, 158), (2.0, 128), (1e30, 1), (1.0, 0)):
        found = penalties([7] * 300, 1e-6, base, 2, SequenceBreakers())
        assert found == {7: pytest.approx(1e-6 * float(np.float32(base)) ** most, rel=1e-6)}
    (largest,) = penalties([7] * 300, 3e38, 2.0, 2, SequenceBreakers()).values()
    assert largest == np.finfo(np.float32).max


def test_long_texts_take_time_in_proportion_to_their_length():
    # By comparing all, it would be some minutes.
    tokens = [1, 2] * 30_000
    assert longest_repetitions(tokens, 2) == {2: 59_998}
    assert longest_repetitions([*range(60_000)], 2) == {}


def test_only_the_last_tokens_are_looked_at():
    tokens = [1, 2, 3, 4, 9, 9, 1, 2, 3]
    for last, expected in ((None, {4: 2}), (9, {4: 2}), (8, {4: 1}), (7, {}), (2, {})):
        how = Sampling(dry_multiplier=1, dry_base=2, dry_penalty_last_n=last)
        assert how.dry_penalties(tokens) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "must have sequences of tokens, got 3"),
        ("ab", "must have sequences of tokens, got 'ab'"),
        ([1, 2], "must have sequences of tokens, got 1 in it"),
        (["a"], "must have sequences of tokens, got 'a' in it"),
        ([[1], []], "that are not empty"),
        ([[1.5]], "a token of dry_sequence_breakers must be an integer, 0 or larger, got 1.5"),
        ([[-1]], "got -1"),
    ],
)
def test_what_are_no_sequences_is_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words) as raised:
        Sampling(dry_sequence_breakers=given)
    assert "dry_sequence_breakers" in str(raised.value)


def test_sequences_are_compared_by_what_they_are():
    one, other = (Sampling(dry_sequence_breakers=each) for each in ([[1, 2], [3]], {(3,), (1, 2)}))
    assert one == other
    assert hash(one) == hash(other)
    assert sorted(one.dry_sequence_breakers) == [(1, 2), (3,)]
    assert (1, 2) in one.dry_sequence_breakers
    assert len(one.dry_sequence_breakers) == 2
