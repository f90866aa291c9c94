"""The public function of an operator: a name, a signature and a docstring around it."""

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tensor_ops.op import Op
from tensor_ops_torch.direct import shortened

__all__ = ["function_of"]

# What a call of an operator does not take, and what is said of it elsewhere.
_LEFT_OUT = ("out", "backend")
_OF_RESULT = re.compile(r";\s+`out` if it was given")
_OF_ERROR = re.compile(r"ValueError\n    If `out` cannot take the result.\n")
_OF_ERRORS = re.compile(r"(?:, ([^,]*?))? or `out` cannot take the result")


def function_of(op: Op, operator: Callable[..., Any], torch_side: ModuleType) -> Callable[..., Any]:
    """Return a function that calls an operator, at once where it can, and documents itself."""
    compute = shortened(op, operator)

    def function(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs) if kwargs or not args else compute(*args)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = __package__
    function.__doc__ = _docstring(op, torch_side)
    parameters = [p for p in op.signature.parameters.values() if p.name not in _LEFT_OUT]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _docstring(op: Op, torch_side: ModuleType) -> str:
    """Return the op's docstring, said of tensors, with the example of the operator's own file."""
    head, *sections = re.split(
        r"\n\n(?=[A-Z][a-z ]+\n---)", inspect.cleandoc(op.public.__doc__ or "")
    )
    kept = [head]
    for section in sections:
        title, _, body = section.partition("\n")
        if title == "Examples":
            continue
        if title == "Parameters":
            entries = re.split(r"\n(?=\S)", body.partition("\n")[2])
            entries = [each for each in entries if not each.startswith(_LEFT_OUT)]
            body = "\n".join([body.partition("\n")[0], *entries])
        body = _OF_ERROR.sub("", body)
        body = _OF_ERRORS.sub(lambda found: f" or {found[1]}" if found[1] else "", body)
        body = re.sub(r"\barray(s?)\b", r"tensor\1", _OF_RESULT.sub("", body))
        kept.append(f"{title}\n{body}")
    _, _, example = inspect.cleandoc(torch_side.__doc__ or "").partition("\n\n")
    gradients = (
        f"Has gradients. As ``torch.ops.tensor_ops.{op.name}`` it is known to torch.compile."
    )
    kept.insert(1, gradients)
    return "\n\n".join([*kept, f"Examples\n--------\n{example}\n"])
