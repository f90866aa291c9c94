"""The tokens of a chat: a template's own marks as special tokens, all that it was given as text.

A template returns one text, in which the name of a special token looks the same whether the
template or a message wrote it. Two more renderings tell them apart. In one, characters for private
use break the names in what the template is given: the names that are left are the template's, and
the text must be the same but for these characters. In the other, what is given cannot contain, end
or begin a name, since its characters that names begin with are replaced: the names must be the same
as in the first. Otherwise the template changes what it is given in a way that nothing is known of.
"""

import itertools
import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tensor_ops_decode.text.arguments import check_texts, texts_in
from tensor_ops_decode.text.chat_messages import (
    check_messages,
    check_objects,
    json_values,
    listed,
)
from tensor_ops_decode.text.chat_template import ChatTemplate, ChatTemplateError
from tensor_ops_decode.text.special_names import Place, SpecialNames
from tensor_ops_decode.text.tokenizer import Tokenizer

__all__ = ["encode_chat"]

_PRIVATE = range(0xF0000, 0xFFFFE)  # characters for private use, which no normal form changes


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    *,
    continue_final_message: bool | str = False,
    parse_special_tokens: bool = False,
) -> list[int]:
    """Return the tokens of a chat, and raise errors, as `Model.chat_prompt` says."""
    given = json_values({**variables, "messages": listed(messages)})
    check_texts(given)
    check_messages(given["messages"])
    for name in ("tools", "documents"):
        if given.get(name) is not None:
            check_objects(name, given[name])
    render = partial(template.render, continue_final_message=continue_final_message)
    text = render(**given)
    names = tokenizer.special_names
    if parse_special_tokens:
        return tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
    # A template's own variables, such as bos_token, are marks whoever gives them. Tools and
    # documents never are, though a folder may give such a name to a special token.
    own = template.variables.keys() & variables.keys() - {"tools", "documents"}
    marks = {name: given.pop(name) for name in own}
    places = _own_places(names, partial(render, **marks), text, given)
    if places == names.places(text):
        tokens = tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=True)
        if sum(map(tokenizer.is_special, tokens)) <= len(places):
            return tokens
    found = tokenizer.encode_with_special(text, places)
    if found is None:
        raise ChatTemplateError(_UNKNOWN)
    return found


def _own_places(
    names: SpecialNames,
    render: Callable[..., str],
    text: str,
    given: dict[str, Any],
) -> list[Place]:
    """Return where in its text a template has written names of special tokens itself."""
    if not any(names.may_be_in(each) for _, each in texts_in(given)):
        return names.places(text)
    all_text = text + json.dumps(given, ensure_ascii=False)
    mark, neutral = itertools.islice(
        (each for each in map(chr, _PRIVATE) if each not in all_text), 2
    )

    def rendered(change: Callable[[str], str]) -> str:
        return render(**{name: _changed(value, change) for name, value in given.items()})

    try:
        marked = rendered(lambda each: names.broken(each, mark))
        free = rendered(lambda each: names.without_begin(each, neutral))
    except ValueError as error:
        raise ChatTemplateError(_UNKNOWN) from error
    own = names.places(marked)
    found = [[each[i:j] for i, j in names.places(each)] for each in (marked, free)]
    if marked.replace(mark, "") != text or found[0] != found[1]:
        raise ChatTemplateError(_UNKNOWN)
    marks = [place for place, character in enumerate(marked) if character == mark]
    return [
        (start - bisect_left(marks, start), end - bisect_left(marks, end)) for start, end in own
    ]


_UNKNOWN = (
    "the chat template changes messages, so that names of special tokens in them cannot be told "
    "from its own; write the messages without '<' and what else begins such a name, or, if you "
    "trust all who wrote them, let the names stand for the tokens: parse_special_tokens=True, "
    "--parse-special-tokens in the shell"
)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_changed(each, change) for each in value]
    return value
