"""Where a rendering is cut so that the model goes on with the final message."""

import json
from collections.abc import Mapping
from typing import Any

from tensor_ops_decode.text.chat_messages import REASONING

__all__ = ["FinalMessage"]

_PRIVATE = range(0x100000, 0x10FFFE)  # characters for private use, of which a text has few


class FinalMessage:
    """The final message of a conversation, which the model is to continue.

    A mark is put behind what it says: a character for private use, and a space, which tells whether
    the template keeps spaces there.

    Parameters
    ----------
    seen : mapping
        What the template sees, as JSON values; the mark is put into its ``messages``.
    field : str
        The key of what is continued.
    source : str
        The template.

    Raises
    ------
    ValueError
        If the message has nothing there to continue, or the template does not know the key.
    """

    def __init__(self, seen: Mapping[str, Any], field: str, source: str) -> None:
        final = seen["messages"][-1] if seen["messages"] else {}
        said = final.get(field)
        # Reasoning is there by several names, of which a template reads one.
        names = REASONING if field in REASONING else (field,)
        fields = [name for name in names if final.get(name) == said]
        blocks = [(final, name) for name in fields]
        if isinstance(said, list):
            texts = [each for each in said if isinstance(each, dict) and "text" in each]
            blocks = [(each, "text") for each in texts[-1:]]
        ends = [block[name] for block, name in blocks]
        if not ends or not isinstance(ends[0], str):
            raise ValueError(f"the final message has no text as its {field!r}, to be continued")
        if not any(name in source for name in fields):
            raise ValueError(f"the chat template reads no {field!r} of messages, to be continued")
        used = source + json.dumps(seen, ensure_ascii=False)
        self._said = ends[0]
        self._mark = next(each for each in map(chr, _PRIVATE) if each not in used) + " "
        for block, name in blocks:
            block[name] += self._mark

    def cut(self, rendered: str) -> str:
        """Return a rendering up to the end of what the final message says.

        Raises
        ------
        ValueError
            If the template does not write it as it is.
        """
        place = rendered.rfind(self._mark[0])
        if place < 0 or self._said.strip() not in rendered:
            raise ValueError("it does not write the final message as it is, to be continued")
        kept = rendered[:place]
        return kept if rendered.startswith(self._mark, place) else kept.rstrip()
