"""Why a module cannot be swapped."""

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """A module is not known to be what an op computes; the message says why."""
