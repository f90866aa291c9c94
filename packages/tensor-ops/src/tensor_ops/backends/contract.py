"""The contract between tensor_ops and a backend: what a backend's module declares and returns.

A backend does not import tensor_ops, so that all of it is plain data: numbers, strings, mappings.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tensor_ops.backends.names import DEVICE_KINDS, did_you_mean

__all__ = ["API_VERSION", "INFO_KEYS", "NUMBER_KEYS", "Capabilities", "capabilities_of"]

API_VERSION = 1

# Keys of info() that are 0 where they have no meaning, so that arithmetic needs no check.
NUMBER_KEYS = (
    "device_count",
    "compute_capability",
    "compute_units",
    "max_memory",
    "max_shared_memory",
)
# The keys that info() has for every backend.
INFO_KEYS = (
    "name",
    "display_name",
    "available",
    "reason",
    "version",
    "device_name",
    *NUMBER_KEYS,
    "dtypes",
    "ops",
)


class Capabilities(NamedTuple):
    """Abilities of a backend besides computing NumPy arrays, as its ``CAPABILITIES`` declares them.

    A backend's module holds a plain mapping with any of these names as keys; what it leaves out,
    or all of it where the module has no ``CAPABILITIES``, has the default.

    Attributes
    ----------
    exchanges_arrays : bool
        Whether the ops also take host arrays whose type has DLPack's C exchange API, such as
        PyTorch's tensors, and return arrays of the same kind. The ops reject unsupported arguments
        before computing, so that the caller may retry another way.
    copies_host_arrays : bool
        Whether host arrays are copied to the memory of a device, computed there and copied back.
    devices : tuple of {"gpu", "cpu", "accelerator"}
        The kinds of device that it can compute on.
    runs_programs : bool
        Whether it runs whole programs of several ops, not only one op at a time.
    """

    exchanges_arrays: bool = False
    copies_host_arrays: bool = False
    devices: tuple[str, ...] = ()
    runs_programs: bool = False


def capabilities_of(declared: object) -> Capabilities:
    """Return what a backend declares as a record.

    Raises
    ------
    TypeError, ValueError
        If it is no mapping, or has a key or a value that the contract does not know.

    Examples
    --------
    >>> capabilities_of({"exchanges_arrays": True, "devices": ["cpu"]}).devices
    ('cpu',)
    """
    if not isinstance(declared, Mapping):
        raise TypeError(f"CAPABILITIES must be a mapping, got {type(declared).__name__}")
    for key, value in declared.items():
        if key not in Capabilities._fields:
            hint = did_you_mean(str(key), Capabilities._fields)
            expected = ", ".join(Capabilities._fields)
            raise ValueError(f"CAPABILITIES has the unknown key {key!r}; {hint}expected {expected}")
        if key == "devices":
            _check_devices(value)
        elif not isinstance(value, bool):
            raise TypeError(f"CAPABILITIES[{key!r}] must be True or False, got {value!r}")
    return Capabilities(**{**declared, "devices": tuple(declared.get("devices", ()))})


def _check_devices(value: object) -> None:
    if not isinstance(value, (list, tuple)) or any(kind not in DEVICE_KINDS for kind in value):
        raise ValueError(
            f"CAPABILITIES['devices'] must be a list of {', '.join(DEVICE_KINDS)}, got {value!r}"
        )
