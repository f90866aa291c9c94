"""Where a rendering is cut so that the model goes on with the final message."""

import itertools
import secrets
from collections.abc import Sequence
from typing import Any

from tensor_ops_decode.text.chat_messages import REASONING

__all__ = ["FinalMessage"]


class FinalMessage:
    """The final message of a conversation, which the model is to continue.

    A mark is put behind what it says: digits that nobody can guess, and a space, which tells
    whether the template keeps spaces there.

    The mark goes into `messages`, which are JSON values, behind what the last one has under the key
    `field`. Raises ValueError if that is no text, or if the template's `source` does not know the
    key.
    """

    def __init__(self, messages: Sequence[dict[str, Any]], field: str, source: str) -> None:
        final = messages[-1] if messages else {}
        said = final.get(field)
        # Reasoning is there by several names, of which a template reads one.
        names = REASONING if field in REASONING else (field,)
        fields = [name for name in names if name in final and final[name] == said]
        blocks = [(final, name) for name in fields]
        if isinstance(said, list):
            texts = [each for each in said if isinstance(each, dict) and "text" in each]
            blocks = [(each, "text") for each in texts[-1:]]
        ends = [block[name] for block, name in blocks]
        if not ends or not isinstance(ends[0], str):
            raise ValueError(f"the final message has no text as its {field!r}, to be continued")
        if not any(name in source for name in fields):
            raise ValueError(f"the chat template reads no {field!r} of messages, to be continued")
        self._said = ends[0]
        self._mark = str(secrets.randbits(128))
        for block, name in blocks:
            block[name] += f"{self._mark} "

    def cut(self, rendered: str) -> str:
        """Return a rendering up to where it has last written what the final message says.

        Raises ValueError if the template does not write that as it is.
        """
        parts = rendered.split(self._mark)
        if len(parts) == 1 or self._said.strip() not in rendered:
            raise ValueError("it does not write the final message as it is, to be continued")
        # A template that has taken the space of a mark trims messages, whose own spaces go too.
        kept = [
            before if after.startswith(" ") else before.rstrip()
            for before, after in itertools.pairwise(parts)
        ]
        return "".join([kept[0], *(each.removeprefix(" ") for each in kept[1:])])
