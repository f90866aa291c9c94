"""Why a module cannot be swapped."""

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """A module is not known to be what an op computes; the message says why.

    `missing` is the name of what the module computes, where that is known and no op computes it.
    """

    def __init__(self, message: str = "", missing: str | None = None) -> None:
        super().__init__(message)
        self.missing = missing
