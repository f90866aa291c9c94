"""Prompts of a batch: what is one, and what is an error."""

import pytest
import torch

from tensor_ops_torch.decoding.prompts import as_batch, row_starts, tokens_of_rows


def test_lists_are_padded_at_the_left():
    tokens, mask = as_batch([[5], [6, 7, 8], (9, 10)], None, 3, "cpu")
    assert tokens.tolist() == [[3, 3, 5], [6, 7, 8], [3, 9, 10]]
    assert mask.tolist() == [[0, 0, 1], [1, 1, 1], [0, 1, 1]]
    starts = row_starts(tokens, mask)
    assert starts == [2, 0, 1]
    assert tokens_of_rows(tokens, starts) == [[5], [6, 7, 8], [9, 10]]
    assert tokens.dtype == mask.dtype == torch.int64


def test_a_mask_of_lists_is_padded_with_them():
    tokens, mask = as_batch([[1, 5], [6, 7, 8]], [[0, 1], [1, 1, 1]], 3, "cpu")
    assert row_starts(tokens, mask) == [2, 0]


@pytest.mark.parametrize(
    ("inputs", "mask", "error", "words"),
    [
        ("text", None, TypeError, "a tokenizer makes them of text"),
        (["text", "more"], None, TypeError, "a tokenizer makes them of text"),
        ([[1], ["a"]], None, TypeError, "must be a tensor or lists of integers"),
        ([[1.5]], None, TypeError, "must be token ids, got torch.float32"),
        (torch.ones(1, 2), None, TypeError, "must be token ids, got torch.float32"),
        (torch.ones(1, 2, dtype=torch.bool), None, TypeError, "must be token ids"),
        (torch.ones(1, 2, 3, dtype=torch.int64), None, ValueError, "a row for each, got shape"),
        ([[1, 2]], [[1]], ValueError, "a number for each token"),
        (torch.ones(1, 2, dtype=torch.int64), [[1]], ValueError, r"the shape of .* \(1, 2\), got"),
    ],
)
def test_what_is_no_prompt_is_an_error(inputs, mask, error, words):
    with pytest.raises(error, match=words):
        as_batch(inputs, mask, 0, "cpu")
