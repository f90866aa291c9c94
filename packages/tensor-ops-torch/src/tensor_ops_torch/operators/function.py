"""The public function of an operator: a name, a signature and a docstring around it."""

import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch

from tensor_ops.extension import Op, check_values
from tensor_ops_torch.operators.direct import bypassing

__all__ = ["function_of"]

# A call of an operator does not take these, nor is anything said of them.
_LEFT_OUT = ("out", "backend")
_OF_RESULT = re.compile(r";\s+`out` if\s+it was given|`out` if it was given\.\s*")
_OF_ERROR = re.compile(r"ValueError\n    If `out` cannot take the result.\n")
_OF_ERRORS = re.compile(r"(?:, ([^,.]*?))?\s+or\s+`out`\s+cannot take the\s+results?")


def function_of(
    op: Op,
    operator: Callable[..., Any],
    run_directly: Callable[..., Any],
    formulas: ModuleType | None,
) -> Callable[..., Any]:
    """Return a function that calls an operator, directly where it can, and documents itself."""
    parameters = [p for p in op.signature.parameters.values() if p.name not in _LEFT_OUT]
    signature = inspect.Signature(parameters)

    def explained(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return operator(*args, **kwargs)
        try:
            return operator(*args, **kwargs)
        except RuntimeError as error:
            _explain(op, signature, args, kwargs, error)

    compute = bypassing(explained, run_directly)

    def function(*args: Any, **kwargs: Any) -> Any:
        return explained(*args, **kwargs) if kwargs or not args else compute(*args)

    function.__name__ = function.__qualname__ = op.name
    function.__module__ = "tensor_ops_torch"
    function.__doc__ = _docstring(op, formulas)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _explain(
    op: Op,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: RuntimeError,
) -> NoReturn:
    """Raise TypeError or ValueError for arguments that do not fit, else the error as it is."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as cause:
        raise TypeError(f"{op.name}: {cause}; the arguments are {signature}") from None
    for name, value in given.items():
        kind = op.kinds[name]
        if not kind.is_array:
            try:
                check_values(op.name, {name: kind}, {name: value})
            except (TypeError, ValueError) as cause:
                raise cause from None
        if not kind.is_array or (kind.optional and value is None):
            continue
        if not isinstance(value, torch.Tensor) and not hasattr(value, "__torch_function__"):
            of = type(value)
            raise TypeError(
                f"{op.name}: {name} must be a torch.Tensor, got {of.__module__}.{of.__qualname__}; "
                "convert it with torch.as_tensor(...)"
            ) from None
    raise error


def _docstring(op: Op, formulas: ModuleType | None) -> str:
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
        kept.append(re.sub(r"\s+$", "", f"{title}\n{body}", flags=re.MULTILINE))
    if formulas is None:
        derivatives = "Has no derivatives: differentiating through it is an error."
    else:
        derivatives = "Has derivatives, in reverse and in forward mode."
        _, _, example = inspect.cleandoc(formulas.__doc__ or "").partition("\n\n")
        kept.append(f"Examples\n--------\n{example}\n")
    compiled = f"As ``torch.ops.tensor_ops.{op.name}`` it is known to torch.compile."
    kept.insert(1, f"{derivatives} {compiled}")
    return "\n\n".join(kept)
