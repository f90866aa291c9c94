"""Encodes a text in which only some of the names of special tokens stand for these tokens."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import tokenizers

from tensor_ops_decode.text.special_names import Place

__all__ = ["PlacedTokens", "tokens_of"]

# How long a text is whose tokens other threads wait for.
_SHORT = 1 << 12


class PlacedTokens:
    """A copy of a tokenizer that knows its special tokens by other names, which no text has.

    With these in the place of the names that stand for tokens, the text is cut and merged as
    always, and the names that are left are text. The other names begin and end with `quote`, a
    character that is in no text which is encoded.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, quote: str) -> None:
        state = json.loads(tokenizer.to_str())
        names = [token["content"] for token in state["added_tokens"]]
        self._alias = {}
        for token in state["added_tokens"]:
            if token["special"]:
                self._alias[token["content"]] = f"{quote}{token['id']}{quote}"
                token["content"] = self._alias[token["content"]]
        state["post_processor"] = None  # adds tokens by their names, and is not used
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
        # The library numbers tokens anew if it does not find their names.
        number: Callable[[str], Any] = self._tokenizer.token_to_id
        numbers = ((number(self._alias.get(name, name)), name) for name in names)
        self._token_of: dict[int, Any] = {own: tokenizer.token_to_id(name) for own, name in numbers}
        self._special = {number(alias) for alias in self._alias.values()}

    def encode(self, text: str, places: Sequence[Place]) -> list[int] | None:
        """Return the tokens of a text, or None if the library does not find one at its place."""
        pieces, end = [], 0
        for place in places:
            pieces += [text[end : place[0]], self._alias[text[slice(*place)]]]
            end = place[1]
        changed = "".join([*pieces, text[end:]])
        found = tokens_of(self._tokenizer, changed, add_special_tokens=False)
        if sum(token in self._special for token in found) != len(places):
            return None
        return [self._token_of.get(token, token) for token in found]


def tokens_of(tokenizer: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Return the tokens of a text; other threads go on while those of a long one are found."""
    if len(text) <= _SHORT:
        return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
    # The library lets other threads run where it has several texts.
    found = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return list(found[0].ids)
