"""Prompts of conversations, by the model's chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensor_ops_decode.text import ChatTemplate, ChatTemplates, Tokenizer
    from tensor_ops_decode.weights import Weights

__all__ = ["REFUSED", "Conversations", "Messages", "check_none_of"]

Messages = Sequence[Mapping[str, Any]]

_ONLY_TOKENS = "a prompt is a list of tokens here; leave it out"
_NO_LENGTHS = "a prompt is never padded or cut, and `generate` takes several of any lengths"
# Arguments of transformers' `apply_chat_template` without meaning here, which templates never see.
REFUSED = {
    "conversation": "the messages are the first argument",
    "tokenize": f"{_ONLY_TOKENS}, and tokenizer.decode(prompt, skip_special_tokens=False) is its "
    "text",
    "return_dict": _ONLY_TOKENS,
    "return_tensors": _ONLY_TOKENS,
    "padding": _NO_LENGTHS,
    "truncation": _NO_LENGTHS,
    "max_length": _NO_LENGTHS,
    "sanitize_control_tokens": "names of special tokens in messages are text unless "
    "parse_special_tokens=True is given",
    "return_assistant_tokens_mask": "it is for training; use transformers for it",
    "tokenizer_kwargs": "the tokenizer is the model's own, without options",
    "processor_kwargs": "messages are text alone, and no processor reads them",
    "load_audio_from_video": "messages are text alone, and no processor reads them",
}


class Conversations:
    """The part of a `Model` that makes prompts of messages."""

    tokenizer: Tokenizer
    _weights: Weights

    def chat_prompt(
        self,
        messages: Messages,
        *,
        chat_template: str | None = None,
        continue_final_message: bool | str = False,
        parse_special_tokens: bool = False,
        **variables: Any,
    ) -> list[int]:
        """Return the tokens of a conversation that the model is to continue.

        They are the whole prompt: the template writes the token that begins a text if the model
        wants one, and none is added. The name of a special token such as ``<|im_end|>`` is that
        token where the template writes it, and text where a message or a variable has it, so that
        nobody who writes a message can end a turn or begin another.

        Parameters
        ----------
        messages : sequence of mapping
            Each with ``"role"`` and ``"content"``, the last of the role ``"user"``. A key whose
            value is None counts as missing.
        chat_template : str, optional
            The name of one of the model's templates, or the text of another. By default it is
            ``"tool_use"`` if tools are given and the model has one of this name, else
            ``"default"``.
        continue_final_message : bool or str, default False
            Whether the model goes on with the last message, of whatever role, instead of
            answering it; a key such as ``"reasoning_content"`` names what of it is continued if it
            is not the content.
        parse_special_tokens : bool, default False
            Whether such names stand for the tokens in messages and variables too. Leave it to
            programs that write every message themselves.
        **variables
            Other values for the template, as JSON values: ``tools`` and ``documents``, which are
            sequences of mappings, ``add_generation_prompt=False`` for a prompt that does not end
            where an answer begins, or what the model knows, such as ``enable_thinking``.

        Raises
        ------
        ValueError
            If the model has no tokenizer or no such chat template, or the template refuses the
            messages; if there is no message, or no text to continue; if a text has a lone
            surrogate; or if the template changes messages so much that names of special tokens in
            them cannot be told from its own.
        TypeError
            If a message, a tool or a document is no mapping, or anything in them or in a variable
            no JSON value; or if a variable is an argument of transformers' ``apply_chat_template``
            that has no meaning here.
        """
        from tensor_ops_decode.text import encode_chat

        self.tokenizer.check_exists()
        check_none_of(REFUSED, variables)
        if not isinstance(continue_final_message, (bool, str)):
            raise TypeError(
                "continue_final_message must be a bool, or the key of what is continued, got "
                f"{continue_final_message!r:.80}"
            )
        has_tools = variables.get("tools") is not None
        return encode_chat(
            self.tokenizer,
            self.chat_template(chat_template, has_tools=has_tools),
            messages,
            variables,
            continue_final_message=continue_final_message,
            parse_special_tokens=parse_special_tokens,
        )

    def chat_template(self, name: str | None = None, *, has_tools: bool = False) -> ChatTemplate:
        """Return the template that `chat_prompt` uses, as it chooses that.

        Raises
        ------
        ValueError
            If the model has no tokenizer or no such chat template.
        """
        self.tokenizer.check_exists()
        return self._chat_templates.chosen(name, has_tools=has_tools)

    @cached_property
    def _chat_templates(self) -> ChatTemplates:
        from tensor_ops_decode.text import open_chat_templates

        return open_chat_templates(self._weights, self.tokenizer)


def check_none_of(refused: Mapping[str, str], given: Iterable[str]) -> None:
    """Raise a TypeError if one of the names is refused."""
    for name in given:
        if name in refused:
            raise TypeError(f"{name} is not taken: {refused[name]}")
