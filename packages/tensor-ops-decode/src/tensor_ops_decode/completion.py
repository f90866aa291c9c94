"""The answer to a prompt: a plain record of its text and tokens."""

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Completion", "TokenLogprob"]


class TokenLogprob(NamedTuple):
    """The logarithm of the probability that the model gave to a token, and to the likeliest ones.

    Attributes
    ----------
    logprob : float
        Of the token that was chosen.
    likeliest : tuple of (int, float)
        Tokens with their log-probabilities, the likeliest first; the chosen one may be among them.
    """

    logprob: float
    likeliest: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Completion:
    """The answer to one prompt.

    Attributes
    ----------
    text : str
        Without the end token, and without the stop string that ended it.
    tokens : tuple of int
        All tokens that the model chose, an end token included.
    finish_reason : {"stop", "length", "error"}
        Whether the model ended its answer or wrote a stop string, or a limit was reached; or in
        `LogitsError.completions`, that its logits chose no further token.
    prompt_tokens : tuple of int
    logprobs : tuple of TokenLogprob, or None
        How likely each token was, if that was asked for.
    accepted_tokens : int
        How many tokens had been guessed; see ``num_speculative_tokens`` of `PersistentKernel`.
    shared_tokens : int
        How many tokens of the prompt were in the caches, for another prompt began with them.
    prompt_seconds, decode_seconds : float
        From the start to the first token, and from there to the last.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    prompt_tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None
    accepted_tokens: int = field(compare=False)
    shared_tokens: int = field(compare=False)
    prompt_seconds: float = field(compare=False)
    decode_seconds: float = field(compare=False)
