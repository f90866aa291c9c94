"""Reads prompts and messages from standard input, which may be of any length.

Tested by tests/decode/generation/test_chat_session.py.
"""

from collections.abc import Callable

from tensor_ops import TensorOpsError

__all__ = ["MOST_CHARACTERS", "read_text"]

# The limit of a prompt or a message. The longest sequences of public models, a million tokens, have
# about four characters a token.
MOST_CHARACTERS = 1 << 24


def read_text(read: Callable[[int], str]) -> str:
    """Return a text that standard input has.

    `read` reads at most so many characters: ``sys.stdin.read``, or ``sys.stdin.readline`` for a
    line. Raises TensorOpsError if the text is too long, or is not UTF-8.
    """
    try:
        text = read(MOST_CHARACTERS + 1)
        text.encode()  # a byte that is no UTF-8 may have become a lone surrogate
    except UnicodeError as error:
        raise TensorOpsError(f"standard input is not UTF-8: {error}") from None
    if len(text) > MOST_CHARACTERS:
        raise TensorOpsError(
            f"standard input has a text of more than {MOST_CHARACTERS} characters; expected a "
            "prompt, or a line of a conversation, of at most that many"
        )
    return text
