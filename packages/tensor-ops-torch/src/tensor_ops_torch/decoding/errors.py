"""What a decoder raises for its own reasons."""

from tensor_ops import TensorOpsError

__all__ = ["UnsupportedModelError", "WeightsChangedError"]


class UnsupportedModelError(TensorOpsError, ValueError):
    """A model computes what the decode engine does not; the message says what, and what to do."""


class WeightsChangedError(TensorOpsError, RuntimeError):
    """The weights of a model are not those that a decoder was made from."""
