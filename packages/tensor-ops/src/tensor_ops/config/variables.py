"""The variables ``TENSOR_OPS_...`` of the environment that nothing here reads.

An installed distribution names those that it reads under the entry-point group
``tensor_ops.variables``, so that a mistake is found without importing anything.
"""

import os
from collections.abc import Iterable, Mapping

from tensor_ops import entry_points
from tensor_ops.config import ENV_FORCE, ENV_PREFERRED, ENV_PRIORITY
from tensor_ops.config.location import ENV_CONFIG
from tensor_ops.errors import ConfigWarning, warn_caller

__all__ = ["ENTRY_POINT_GROUP", "OWN", "unread", "warn_of_unread", "warned_of"]

ENTRY_POINT_GROUP = "tensor_ops.variables"
# Variables that tensor_ops itself reads, and the last one programs in C++.
OWN = (ENV_FORCE, ENV_PREFERRED, ENV_PRIORITY, ENV_CONFIG, "TENSOR_OPS_BACKEND_PATH")


def unread(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that no installed package reads, each with what to tell of it.

    An empty variable counts as unset.
    """
    others = [name for name in environ if name.startswith(_PREFIX) and name not in OWN]
    others = [name for name in others if environ[name].strip()]
    if not others:
        return {}  # the metadata of what is installed takes longer to read than all else here
    known = sorted({*OWN, *entry_points.named(ENTRY_POINT_GROUP)})
    return {name: _told(name, known) for name in sorted(others) if name not in known}


def warn_of_unread() -> None:
    """Warn of the variables that nothing reads, of each once in a process.

    Warns
    -----
    ConfigWarning
        With the nearest name that is read.
    """
    new = {name: told for name, told in unread().items() if name not in warned_of}
    if not new:
        return
    # Noted before, because what shows warnings may call us again.
    warned_of.update(new)
    try:
        warn_caller("; ".join(f"{name}: {told}" for name, told in new.items()), ConfigWarning)
    except BaseException:
        warned_of.difference_update(new)  # a filter makes it an error, each time
        raise


_PREFIX = "TENSOR_OPS_"
warned_of: set[str] = set()


def _told(name: str, known: Iterable[str]) -> str:
    # Imported here because only mistakes need it.
    from difflib import get_close_matches

    # Without what all names have in common, by which any two would be near.
    choices = {each.removeprefix(_PREFIX): each for each in known}
    near = get_close_matches(name.removeprefix(_PREFIX).upper(), choices, n=1, cutoff=0.5)
    rest = (
        f"did you mean {choices[near[0]]}?" if near else f"those that are read: {', '.join(known)}"
    )
    return f"no installed package reads this environment variable; {rest}"
