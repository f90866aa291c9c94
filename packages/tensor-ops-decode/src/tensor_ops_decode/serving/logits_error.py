"""Why the logits of a request choose no token."""

from typing import Any

from tensor_ops_decode.errors import LogitsError
from tensor_ops_decode.program import Program
from tensor_ops_decode.serving.request import Request

__all__ = ["logits_error"]


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
    if not hasattr(executable, "first_nan"):
        return LogitsError(f"{step} choose no token: they are NaN or all -inf", request.number)
    index = executable.first_nan(num_tokens, num_selected, request.slot)
    if index is None:
        return LogitsError(f"{step} choose no token: all are -inf", request.number)
    node = program.nodes[index]
    return LogitsError(
        f"{step} are NaN. The first result with NaN is that of node {node.name!r} "
        f"({node.kind}): the weights are damaged, or numbers became too large. Get the model's "
        "files again, or try cache_dtype='float32'",
        request.number,
    )
