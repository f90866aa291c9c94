"""Errors of decoders."""

from tensor_ops import TensorOpsError

__all__ = ["RefusedSettingError", "UnsupportedModelError", "WeightsChangedError"]


class RefusedSettingError(TensorOpsError, ValueError):
    """A setting of transformers asks for what a decoder does not do.

    Attributes
    ----------
    setting : str
        Its name.
    """

    setting: str

    def __init__(self, message: str, setting: str) -> None:
        super().__init__(message)
        self.setting = setting

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.setting)


class UnsupportedModelError(TensorOpsError, ValueError):
    """A model computes what the decode engine does not; the message says what, and what to do."""


class WeightsChangedError(TensorOpsError, RuntimeError):
    """A model is not what it was when a decoder was made from it: its weights, settings or code."""
