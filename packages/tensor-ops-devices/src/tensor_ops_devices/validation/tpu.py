"""The settings of a TPU, held against a TPU or a version of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensor_ops_devices.hardware.config import TPUConfig, TPUTopology, TPUVersion
from tensor_ops_devices.hardware.profile import GB, TPU_MEMORY_GB, HardwareProfile
from tensor_ops_devices.validation.report import ValidationCheck, failed, passed, skipped, warning

__all__ = ["TPUTarget", "check_settings"]


@dataclass(frozen=True)
class TPUTarget:
    """The TPU that settings are held against: one that is here, or one of a version."""

    name: str
    version: TPUVersion | None
    topology: TPUTopology | None
    memory: int | None  # bytes of one device
    is_here: bool

    @classmethod
    def of(cls, profile: HardwareProfile) -> TPUTarget:
        """Return a TPU that is here."""
        topology = TPUTopology.SINGLE
        if profile.slice_count > 1:
            topology = TPUTopology.SUPERPOD
        elif profile.host_count > 1:
            topology = TPUTopology.POD
        memory = round(profile.total_memory_gb * GB)
        return cls(profile.device_name, profile.tpu_version, topology, memory, True)

    @classmethod
    def wanted(cls, version: TPUVersion) -> TPUTarget:
        """Return a TPU of a version."""
        if version is TPUVersion.AUTO:
            return cls("a TPU", None, None, None, False)
        return cls(f"a TPU {version}", version, None, TPU_MEMORY_GB[version] * GB, False)


def check_settings(settings: TPUConfig, target: TPUTarget) -> list[ValidationCheck]:
    """Check each setting that asks for something of the TPU."""
    asked_for = settings.changed()
    found = (_RULES[name](settings, target) for name in _RULES if name in asked_for)
    return [each for each in found if each is not None]


def _version(settings: TPUConfig, target: TPUTarget) -> ValidationCheck:
    wanted = settings.version
    if not target.is_here:
        return skipped("version", f"no TPU is here to be {wanted}", "run it on the TPU")
    if target.version == wanted:
        return passed("version", f"{target.name} is {wanted}")
    return failed(
        "version",
        f"{wanted} is asked for, {target.name} is {target.version or 'unknown here'}",
        "use that TPU, or TPUVersion.AUTO to take what is there",
    )


def _topology(settings: TPUConfig, target: TPUTarget) -> ValidationCheck:
    wanted = settings.topology
    if not target.is_here:
        return skipped("topology", f"no TPU is here to be a {wanted}", "run it on the TPU")
    if target.topology == wanted:
        return passed("topology", f"{target.name} is a {wanted}")
    return failed(
        "topology",
        f"{wanted} is asked for, {target.name} is a {target.topology}",
        "start the process on every host, or use TPUTopology.AUTO",
    )


def _mixed(settings: TPUConfig, target: TPUTarget) -> ValidationCheck | None:
    if settings.precision == "bfloat16":
        how = "runs under torch.autocast" if settings.mixed_precision else "is converted"
        return passed("mixed_precision", f"the model {how}")
    if settings.mixed_precision:
        return warning(
            "mixed_precision",
            f"has no effect: precision is {settings.precision!r}, with nothing to mix",
            "set precision='bfloat16'",
        )
    return None


def _precision(settings: TPUConfig, target: TPUTarget) -> ValidationCheck:
    return passed("precision", f"{target.name} computes {settings.precision}")


def _fraction(settings: TPUConfig, target: TPUTarget) -> ValidationCheck:
    name, limit = "memory_fraction", f"{settings.memory_fraction:.0%} of the memory"
    if target.memory is None:
        return skipped(name, f"{limit} is asked for", "set TPUConfig.version, or run it on the TPU")
    budget = target.memory * (settings.memory_fraction or 1)
    return passed(name, f"{limit} is {budget / GB:.1f} GB")


_RULES: dict[str, Callable[[TPUConfig, TPUTarget], ValidationCheck | None]] = {
    "version": _version,
    "topology": _topology,
    "precision": _precision,
    "mixed_precision": _mixed,
    "memory_fraction": _fraction,
}
