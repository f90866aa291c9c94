"""The prompts of a batch: tensors and lists in, the tokens of each row out."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

__all__ = ["as_batch", "pad_token_of", "padding_of_prompts", "row_starts", "tokens_of_rows"]


def as_batch(
    inputs: Any,
    attention_mask: Any,
    pad_token: int,
    device: torch.device | str,
    padding: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return prompts as a tensor of int64 with a row for each, and the mask of its padding or None.

    Lists of different lengths are padded at the left with `pad_token`, and go to `device`. Without
    an `attention_mask`, a token of lists that is `padding` counts as such, as `padding_of_prompts`
    returns it.

    Raises TypeError or ValueError if these are no tokens, or the mask is not one of them.

    Examples
    --------
    >>> tokens, mask = as_batch([[5, 6], [7]], None, 0, "cpu")
    >>> tokens.tolist(), mask.tolist()
    ([[5, 6], [0, 7]], [[1, 1], [0, 1]])
    """
    if _is_ragged(inputs):
        if attention_mask is None:
            attention_mask = [[int(token != padding) for token in row] for row in inputs]
        if [len(row) for row in attention_mask] != [len(row) for row in inputs]:
            raise ValueError("attention_mask must have a number for each token of the prompts")
        longest = max(len(row) for row in inputs)
        inputs, attention_mask = (
            [[fill] * (longest - len(row)) + list(row) for row in rows]
            for rows, fill in ((inputs, pad_token), (attention_mask, 0))
        )
    tokens = _tensor("the prompts", inputs, device)
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise TypeError(f"the prompts must be token ids, got {tokens.dtype}")
    if tokens.ndim not in (1, 2):
        raise ValueError(f"the prompts must have a row for each, got shape {tuple(tokens.shape)}")
    mask = None if attention_mask is None else _tensor("attention_mask", attention_mask, device)
    if mask is not None and mask.shape != tokens.shape:
        raise ValueError(
            f"attention_mask must have the shape of the prompts, {tuple(tokens.shape)}, got "
            f"{tuple(mask.shape)}"
        )
    if tokens.ndim == 1:
        tokens, mask = tokens[None], None if mask is None else mask[None]
    return tokens.long(), None if mask is None else mask.long()


def pad_token_of(settings: Mapping[str, Any], ends: Sequence[int] = ()) -> int:
    """Return what fills a row behind its end: of settings, or the first end token, or 0."""
    for given in (settings.get("pad_token_id"), settings.get("eos_token_id"), ends):
        tokens = torch.as_tensor([] if given is None else given).flatten()
        if len(tokens):
            return int(tokens[0])
    return 0


def padding_of_prompts(settings: Mapping[str, Any]) -> int | None:
    """Return which token of a prompt without a mask transformers takes for padding, if any.

    Examples
    --------
    >>> padding_of_prompts({"pad_token_id": 0, "eos_token_id": [2, 3]})
    0
    >>> print(padding_of_prompts({"pad_token_id": 2, "eos_token_id": [2, 3]}))
    None
    """
    padding, ends = settings.get("pad_token_id"), settings.get("eos_token_id")
    if padding is None or padding in torch.as_tensor([] if ends is None else ends):
        return None
    return int(padding)


def row_starts(tokens: torch.Tensor, mask: torch.Tensor | None) -> list[int]:
    """Return where each row of a batch begins behind its padding.

    Raises ValueError if the padding of a row is not at its left, or a row has nothing else.
    """
    if mask is None:
        return [0] * len(tokens)
    if mask.shape != tokens.shape:
        raise ValueError(
            f"attention_mask must have the shape of input_ids, {tuple(tokens.shape)}, got "
            f"{tuple(mask.shape)}"
        )
    kept = mask != 0
    (wrong,) = torch.nonzero(~kept[:, -1] | (kept[:, :-1] & ~kept[:, 1:]).any(1), as_tuple=True)
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"row {row} of attention_mask is {kept[row].long().tolist()!s:.80}; expected zeros for "
            "padding at the left, then ones: set padding_side='left' in the tokenizer, and leave "
            "tokens out of input_ids that are not to be seen. Where no mask is given, tokens that "
            "are pad_token_id are padding, as in transformers"
        )
    starts: list[int] = (~kept).sum(1).tolist()
    return starts


def tokens_of_rows(tokens: torch.Tensor, starts: Sequence[int]) -> list[list[int]]:
    """Return the tokens of each row of a batch behind its padding."""
    return [row[start:] for row, start in zip(tokens.tolist(), starts, strict=True)]


def _is_ragged(inputs: Any) -> bool:
    """Return whether these are lists of tokens, which may have different lengths."""
    return (
        isinstance(inputs, Sequence)
        and not isinstance(inputs, str)
        and bool(inputs)
        and all(isinstance(row, Sequence) and not isinstance(row, str) for row in inputs)
    )


def _tensor(what: str, values: Any, device: torch.device | str) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values
    try:
        return torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{what} must be a tensor or lists of integers, got {values!r:.80}; a tokenizer makes "
            "them of text"
        ) from None
