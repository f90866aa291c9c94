"""The computation of one step of a model, as a plain value, and the rules that it keeps."""

from tensor_ops_decode.program.program import (
    Cache,
    Draft,
    Limits,
    Node,
    Program,
    State,
    Tensor,
    Value,
)

__all__ = ["Cache", "Draft", "Limits", "Node", "Program", "State", "Tensor", "Value"]
