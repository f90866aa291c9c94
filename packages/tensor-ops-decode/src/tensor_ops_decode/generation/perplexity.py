"""Perplexity: how well a model predicts a text, by the definition of llama.cpp's tool."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.generation.model import Model
from tensor_ops_decode.text.arguments import Prompt, checked_prompt

__all__ = ["Perplexity", "perplexity"]

# With fewer tokens the second half of a chunk has none that is predicted.
_LEAST_CONTEXT = 4


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text.

    Attributes
    ----------
    value : float
        ``exp`` of the mean of the negative log-probabilities: smaller is better.
    error : float
        Its standard error, as far as it comes from the choice of the text.
    num_scored : int
        How many tokens were predicted.
    num_chunks, context : int
        The text was read in so many parts of so many tokens.
    """

    value: float
    error: float
    num_scored: int
    num_chunks: int
    context: int


def perplexity(
    model: Model,
    text: Prompt,
    *,
    context: int = 512,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Return the perplexity of a text.

    The text is cut into chunks of `context` tokens, and what is left at its end is dropped. Each
    chunk is read by itself, and the tokens of its second half are predicted, so that each has at
    least half of the context before it. If the model's texts begin with a token of their own, that
    takes the place of the first token of each chunk.

    Parameters
    ----------
    model : Model
    text : str or sequence of int
        Of two chunks or more.
    context : int, optional
        At least 4, and at most the model's longest sequence.
    progress : callable, optional
        Called with the number of chunks that are done, and of all.

    Returns
    -------
    Perplexity

    Raises
    ------
    TypeError, ValueError
        If the text has fewer than ``2 * context`` tokens, or as of `Model.logprobs`.
    LogitsError
        If logits are NaN.

    Notes
    -----
    As the tool ``llama-perplexity`` of llama.cpp without its option ``--ppl-stride``.

    Examples
    --------
    >>> import tensor_ops_decode
    >>> model = tensor_ops_decode.load("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
    >>> tensor_ops_decode.perplexity(model, text, context=128).value  # doctest: +SKIP
    21.4
    """
    context = whole("context", context, _LEAST_CONTEXT)
    given, tokenizer = checked_prompt("text", text), model.tokenizer
    tokens = tokenizer.encode(given) if isinstance(given, str) else list(given)
    if len(tokens) < 2 * context:
        raise ValueError(
            f"the text has {len(tokens)} tokens, expected two chunks of {context} at least: give a "
            "longer text, or a smaller context"
        )
    first, chunks = context // 2 + 1, len(tokens) // context
    found: list[float] = []
    for number in range(chunks):
        chunk = tokens[number * context : (number + 1) * context]
        if tokenizer.adds_bos and tokenizer.bos is not None:
            chunk[0] = tokenizer.bos
        found += model.logprobs(chunk, first=first)
        if progress is not None:
            progress(number + 1, chunks)
    scored = -np.array(found)
    value = math.exp(scored.mean())
    error = value * float(scored.std()) / math.sqrt(len(scored) - 1)
    return Perplexity(value, error, len(scored), chunks, context)
