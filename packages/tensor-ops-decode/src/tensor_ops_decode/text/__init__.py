"""Text to tokens and back, and chats to text, as a model's files say."""

from tensor_ops_decode.text.chat_template import ChatTemplate
from tensor_ops_decode.text.chat_templates import ChatTemplates, open_chat_templates
from tensor_ops_decode.text.chat_tokens import encode_chat
from tensor_ops_decode.text.open_tokenizer import open_tokenizer
from tensor_ops_decode.text.tokenizer import TextStream, Tokenizer

__all__ = [
    "ChatTemplate",
    "ChatTemplates",
    "TextStream",
    "Tokenizer",
    "encode_chat",
    "open_chat_templates",
    "open_tokenizer",
]
