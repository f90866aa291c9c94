"""For how long a rank waits for another one."""

import os
from collections.abc import Sequence

from tensor_ops_decode.errors import RankError

__all__ = ["VARIABLE", "deadline_seconds", "too_late"]

#: The environment variable with the seconds.
VARIABLE = "TENSOR_OPS_RANK_DEADLINE"

# A rank that has ended is noticed at once; this is for one that does not go on. Others may be
# packing the weights of a large model meanwhile.
_DEFAULT = 600.0


def deadline_seconds() -> float:
    """Return for how many seconds a rank waits before it gives up.

    Raises ValueError if the environment variable is no positive number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    try:
        seconds = float(text) if text else _DEFAULT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{VARIABLE} must be a positive number of seconds, got {text!r}")
    return seconds


def too_late(seconds: float, ranks: Sequence[int]) -> RankError:
    """Return the error that some ranks have not come in time."""
    names = " and ".join(f"rank {rank}" for rank in ranks) or "another rank"
    return RankError(
        f"{names} did not come to the same step within {seconds:g} s, the value of {VARIABLE}",
        *ranks[:1],
    )
