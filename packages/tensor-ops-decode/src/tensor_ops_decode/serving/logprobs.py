"""How likely tokens were to a model, from its logits."""

import numpy as np

from tensor_ops_decode.completion import TokenLogprob
from tensor_ops_decode.kinds.kind import Array

__all__ = ["token_logprob"]


def token_logprob(logits: Array, token: int, count: int) -> TokenLogprob:
    """Return the log-probability of a token, and of so many of the likeliest.

    Examples
    --------
    >>> import numpy as np
    >>> found = token_logprob(np.log([0.25, 0.5, 0.25]), token=0, count=2)
    >>> round(found.logprob, 3), [token for token, _ in found.likeliest]
    (-1.386, [1, 0])
    """
    values = logits.astype(np.float64)
    largest = values.max()
    values -= largest + np.log(np.exp(values - largest).sum())
    count = min(count, len(values))
    least = np.partition(values, -count)[-count] if count else np.inf
    (candidates,) = np.nonzero(values >= least)
    order = np.argsort(-values[candidates], kind="stable")[:count]  # of equals the lowest token
    likeliest = tuple((int(each), float(values[each])) for each in candidates[order])
    return TokenLogprob(float(values[token]), likeliest)
