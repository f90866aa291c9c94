"""Facts in the logits of a request: how likely tokens were, or why none can be chosen.

Tested by tests/decode/scheduling/test_logprobs.py.
"""

from typing import Any

import numpy as np

from tensor_ops_decode.completion import TokenLogprob
from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.kinds.kind import Array
from tensor_ops_decode.program import Program, State
from tensor_ops_decode.scheduling.request import Request

__all__ = ["logits_error", "token_logprob"]


def token_logprob(logits: Array, token: int, count: int) -> TokenLogprob:
    """Return the log-probabilities of a token and of the `count` likeliest ones.

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


def logits_error(
    program: Program, executable: Any, request: Request, num_tokens: int, num_selected: int
) -> LogitsError:
    """Return the error of a request for which the step in the arrays has chosen no token.

    The step runs again, so that its results can be looked at before later nodes use their memory.
    """
    num_new = len(request.tokens) - request.prompt_length
    step = (
        f"request {request.number}, step {num_new + 1}: the logits after {request.prompt_length} "
        f"tokens of the prompt and {num_new} new ones"
    )
    allowed = ""
    if request.constraint is not None:
        allowed = " that the constraint allows"
        if problem := request.constraint.problem(request.generated):
            return LogitsError(f"{step} choose no token: {problem}", request.number)
    index = None
    if is_searched := hasattr(executable, "first_nan"):
        index = executable.first_nan(num_tokens, num_selected, request.slot)
    # Some executors cannot take a step again that has changed a state.
    has_state = any(isinstance(cache, State) for cache in program.caches.values())
    if index is None and (has_state or not is_searched):
        return LogitsError(
            f"{step} choose no token: they are NaN, or all{allowed} -inf", request.number
        )
    if index is None:
        return LogitsError(f"{step} choose no token: all{allowed} are -inf", request.number)
    node = program.nodes[index]
    return LogitsError(
        f"{step} are NaN. The first result with NaN is that of node {node.name!r} "
        f"({node.kind}): the weights are damaged, or numbers became too large. Get the model's "
        "files again, or try cache_dtype='float32'",
        request.number,
    )
