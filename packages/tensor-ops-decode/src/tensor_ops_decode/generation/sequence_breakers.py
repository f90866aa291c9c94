"""The texts at which repetitions end, as sequences of a model's tokens: see DRY in `Sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tensor_ops_decode.scheduling.dry import SequenceBreakers

if TYPE_CHECKING:
    from tensor_ops_decode.text import Tokenizer

__all__ = ["TextBreakers", "check_breakers"]

# The bounds of llama.cpp, which cuts longer texts: within them, the search takes linear time.
_MOST_BYTES = 40
_MOST_FOLLOWING = 20
_MOST_TEXTS = 64  # each of which is looked for in all tokens


def check_breakers(texts: Sequence[str]) -> None:
    """Raise a ValueError if one of the texts is too long, or there are too many."""
    if len(texts) > _MOST_TEXTS:
        raise ValueError(
            f"dry_sequence_breakers must have {_MOST_TEXTS} texts at most, got {len(texts)}"
        )
    for number, text in enumerate(texts):
        if (size := len(text.encode())) > _MOST_BYTES:
            raise ValueError(
                f"dry_sequence_breakers[{number}] must have {_MOST_BYTES} bytes of UTF-8 at most, "
                f"got {size}"
            )


class TextBreakers:
    """Finds the sequences of tokens that write a text, whatever text is around it.

    `vocabulary` is the number of tokens that the model chooses from.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary
        self.of = lru_cache(maxsize=16)(self._of)

    def _of(self, texts: tuple[str, ...]) -> SequenceBreakers:
        """Return the sequences of some texts."""
        if texts:
            self._tokenizer.check_exists()
        return SequenceBreakers(each for text in texts for each in self._sequences(text.encode()))

    def _sequences(self, text: bytes) -> Iterator[tuple[int, ...]]:
        """Give each token in which a text is, or begins, with the tokens of the rest of it.

        As in llama.cpp, the rest has the tokens that it has by itself.
        """
        rests = {size: self._rest(text[size:]) for size in range(1, len(text))}
        for token, written in enumerate(self._written):
            if text[0] not in written:
                continue
            if text in written:
                yield (token,)
                continue
            for size, rest in rests.items():
                if rest and written.endswith(text[:size]):
                    yield (token, *rest)

    def _rest(self, text: bytes) -> list[int]:
        try:
            rest = text.decode()
        except UnicodeDecodeError:  # it begins within a character, of which there are no tokens
            return []
        return self._tokenizer.encode(rest, add_special_tokens=False)[:_MOST_FOLLOWING]

    @cached_property
    def _written(self) -> list[bytes]:
        """What each token writes; of a special one, its name."""
        known = self._tokenizer
        # The embedding may have rows without a token.
        return [
            (known.token(token).encode() if (text := known.token_bytes(token)) is None else text)
            if token in known
            else b""
            for token in range(self._vocabulary)
        ]
