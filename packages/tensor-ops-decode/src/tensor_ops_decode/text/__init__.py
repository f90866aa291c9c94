"""Text to tokens and back, and chats to text, as a model's files say."""

from tensor_ops_decode.text.chat_template import ChatTemplate, open_chat_template
from tensor_ops_decode.text.chat_tokens import encode_chat
from tensor_ops_decode.text.open_tokenizer import open_tokenizer
from tensor_ops_decode.text.tokenizer import TextStream, Tokenizer

__all__ = [
    "ChatTemplate",
    "TextStream",
    "Tokenizer",
    "encode_chat",
    "open_chat_template",
    "open_tokenizer",
]
