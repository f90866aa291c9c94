"""The rules of docs/guides/configuration.md once more, and shorter: what runs, or what fails.

Nothing of tensor_ops is used here, so that a mistake is not made twice.
"""

from typing import NamedTuple

__all__ = ["AUTOMATIC", "BUILT_IN", "RefusedError", "Expected", "Machine", "Settings", "expected"]

AUTOMATIC = ("auto", "fastest")
BUILT_IN = ("cuda", "opencl", "cpp", "python")
KINDS = ("gpu", "cpu", "accelerator")
# Names that are known everywhere, with the backends that they are known for.
KNOWN = {
    *BUILT_IN, "torch", "mps", "rocm", "tpu", "nki", "triton", "cudnn", "mkl", "mkldnn",
}  # fmt: skip
ALIASES = {"numpy": "python", "openmp": "cpp", "cpu": "cpp"}


class RefusedError(Exception):
    """The reason for which a setting or a call is refused: "config", "unavailable" or "backend"."""


class Machine(NamedTuple):
    """Installed backends: by name the kind of device or None, what it lacks, and what computes.

    `state` is "available", "absent", "broken" or "wrong setting".
    """

    state: dict[str, str]
    kind: dict[str, str | None]
    dtypes: dict[str, tuple[str, ...]]

    def resolve(self, name):
        base, colon, kind = name.partition(":")
        if base == "cpu" and "cpp" not in self.state:
            base = "python"
        base = ALIASES.get(base, base)
        is_known = base in KNOWN or base in self.state
        if not is_known or (colon and kind not in KINDS):
            raise RefusedError("config")
        return base + colon + kind

    def state_of(self, name):
        base, _, kind = name.partition(":")
        if base == "python":
            return "absent" if kind not in ("", "cpu") else "available"
        state = self.state.get(base, "absent")
        if state == "available" and kind and kind != self.kind[base]:
            return "absent"
        return state

    def computes(self, name, dtype):
        base = name.partition(":")[0]
        return base == "python" or dtype in self.dtypes[base]


class Settings(NamedTuple):
    """The configuration, as it was written; "" or None where nothing is."""

    env_force: str = ""
    env_preferred: str = ""
    env_priority: str = ""
    file: dict | None = None

    def checked(self, machine):
        """Return the levels (source, force, preferred, priority), or raise RefusedError."""
        levels = []
        if force := self.env_force.strip():
            levels.append(("environment", machine.resolve(force), None, None))
        if preferred := self.env_preferred.strip():
            name = preferred if preferred in AUTOMATIC else machine.resolve(preferred)
            levels.append(("environment", None, name, None))
        if order := self.env_priority.strip():
            written = [name.strip() for name in order.split(",")]
            levels.append(("environment", None, None, _order(written, machine)))
        if self.file is not None:
            levels.append(_level_of(self.file, machine))
        return levels


class Expected(NamedTuple):
    """The backend that runs, and whether a warning says that another one was wanted."""

    backend: str
    warns: bool


def expected(machine, levels, dtype, named=None, default=None):
    """Return what a call does under checked levels, or raise RefusedError."""
    forces = [force for _, force, _, _ in levels if force]
    if named is not None and named not in AUTOMATIC:
        name = machine.resolve(named)
        return _strict(machine, _narrowed(forces[0], name) if forces else name, dtype)
    if forces:
        return _strict(machine, forces[0], dtype)
    orders = [order for _, _, _, order in levels if order]
    order = orders[0] if orders else BUILT_IN
    wish = "auto" if named else None
    if wish is None and default is not None:
        wish = default
    for _, _, preferred, own_order in levels:
        if wish is None and (preferred or own_order):
            wish = preferred or "auto"
    first = [wish] if wish is not None and wish not in AUTOMATIC else []
    # A last resort that the order does not name comes after OpenCL on a CPU.
    ends = [None] if "python" in (*first, *order) else [None, "python"]
    return _fallback(machine, first, [*dict.fromkeys([*first, *order]), *ends], dtype)


def _order(written, machine):
    if not written or len(set(written)) < len(written):
        raise RefusedError("config")
    return tuple(dict.fromkeys(machine.resolve(name) for name in written))


def _level_of(content, machine):
    if not set(content) <= {"preferred_backend", "backend_priority", "force_backend", "$schema"}:
        raise RefusedError("config")
    force = content.get("force_backend")
    preferred = content.get("preferred_backend", "auto" if "preferred_backend" in content else None)
    order = content.get("backend_priority")
    if "backend_priority" in content and not isinstance(order, list):
        raise RefusedError("config")
    if "preferred_backend" in content and not isinstance(preferred, str):
        raise RefusedError("config")
    if force is not None and not isinstance(force, str):
        raise RefusedError("config")
    if any(not isinstance(name, str) for name in order or ()):
        raise RefusedError("config")
    return (
        "file",
        None if force is None else machine.resolve(force),
        preferred if preferred is None or preferred in AUTOMATIC else machine.resolve(preferred),
        None if order is None else _order(order, machine),
    )


def _narrowed(force, name):
    """Return what a name means under a force: it may add the kind of device, and no more."""
    if force.partition(":")[0] != name.partition(":")[0]:
        raise RefusedError("backend")
    if ":" in force and ":" in name and force != name:
        raise RefusedError("backend")
    return name if ":" in name else force


def _strict(machine, name, dtype):
    state = machine.state_of(name)
    if state == "wrong setting":
        raise RefusedError("config")
    if state != "available":
        raise RefusedError("unavailable")
    if not machine.computes(name, dtype):
        raise RefusedError("backend")
    return Expected(name.partition(":")[0], False)


def _fallback(machine, wanted, order, dtype):
    """Return what an order runs; None in it is where OpenCL on a CPU is tried."""
    warns, is_found, waits = False, False, False
    last = order[order.index(None) - 1]
    for name in order:
        if name is None:
            if waits and machine.computes("opencl", dtype):
                return Expected("opencl", warns)
            continue
        state = machine.state_of(name)
        if state == "wrong setting":
            raise RefusedError("config")
        if state == "available":
            is_last = name == last or [name] == wanted
            if name == "opencl" and machine.kind["opencl"] == "cpu" and not is_last:
                waits = True
                continue
            is_found = True
            if machine.computes(name, dtype):
                return Expected(name.partition(":")[0], warns)
        elif not is_found:
            # An unavailable backend is told where the choice for all ops passes it over.
            warns = warns or [name] == wanted or state == "broken"
    raise AssertionError("python runs everything")
