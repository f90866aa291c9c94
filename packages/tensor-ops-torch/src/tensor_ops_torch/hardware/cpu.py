"""What this process may use of the processor and the memory."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "CPUFacts",
    "allowed_cores",
    "allowed_memory",
    "brand_of_mac",
    "cpu_facts",
    "memory_of_process",
]

ROOT = Path("/")
# In bytes; without a limit, version 1 of cgroups says a number next to 2**63.
_NO_LIMIT = 2**60


class CPUFacts(NamedTuple):
    """The processor as this process sees it.

    Attributes
    ----------
    name : str
        What the processor calls itself.
    isa : str or None
        The highest instruction-set level that it has of those that tensor_ops_cpp knows, such as
        "x86-64-v4"; None if tensor_ops_cpp cannot be used.
    cores : int
        How many logical processors this process may use.
    memory : int
        How many bytes of memory this process may use; 0 if the system does not say.
    """

    name: str
    isa: str | None
    cores: int
    memory: int


def cpu_facts() -> CPUFacts:
    """Return the facts of this processor."""
    name, isa = _of_tensor_ops_cpp()
    return CPUFacts(name or _name_from_system(), isa, allowed_cores(), allowed_memory())


def allowed_cores(root: Path = ROOT) -> int:
    """Return the number of cores in the affinity mask, or the cgroup's quota where that is less."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        cores = os.cpu_count() or 1
    quotas = [_quota(directory) for directory in _cgroups("cpu", root)]
    return max(1, min(cores, *(math.ceil(quota) for quota in quotas if quota), cores))


def allowed_memory(root: Path = ROOT) -> int:
    """Return the bytes of memory of the machine, or the cgroup's limit where that is less."""
    total = _memory_of_machine()
    limits = [_memory_limit(directory) for directory in _cgroups("memory", root)]
    return min([total, *(limit for limit in limits if limit)])


def memory_of_process() -> dict[str, int]:
    """Return how many bytes this process has in memory, had at most, and how many are left.

    Returns
    -------
    dict
        With the keys ``used``, ``peak`` and ``available``; without those that the system does not
        tell.
    """
    status = _kilobytes(ROOT / "proc/self/status")
    left = _kilobytes(ROOT / "proc/meminfo")
    words = {"used": status.get("VmRSS"), "peak": status.get("VmHWM")}
    words["available"] = left.get("MemAvailable")
    return {key: value for key, value in words.items() if value is not None}


def _of_tensor_ops_cpp() -> tuple[str | None, str | None]:
    try:
        import tensor_ops_cpp
    except ImportError:
        return None, None
    levels = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
    return tensor_ops_cpp.info()["device_name"], levels[-1] if levels else None


def _name_from_system() -> str:
    try:
        for line in (ROOT / "proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass
    return brand_of_mac() or platform.processor() or platform.machine() or "CPU"


def brand_of_mac() -> str | None:
    """Return the name of the processor of a Mac, None elsewhere."""
    if platform.system() != "Darwin":
        return None
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _memory_of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no such function
        try:
            import tensor_ops_cpp
        except ImportError:
            return 0
        return int(tensor_ops_cpp.info()["max_memory"] or 0)


def _cgroups(controller: str, root: Path) -> list[Path]:
    """Return the directories of this process's cgroups, version 1 and 2, and of their ancestors.

    In a container the path may be the host's, while the container's own cgroup is the mount itself:
    what is not there is left out, and the mount is always looked at.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0":
            mount = root / "sys/fs/cgroup"
        elif controller in names.split(","):
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        own = mount / path.lstrip("/")
        found += [own, *(each for each in own.parents if each.is_relative_to(mount))]
    return [each for each in dict.fromkeys(found) if each.is_dir()]


def _quota(directory: Path) -> float | None:
    words = _words(directory / "cpu.max")
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = _words(directory / "cpu.cfs_quota_us"), _words(directory / "cpu.cfs_period_us")
    if quota and period and quota[0].isdigit():  # -1 where there is none
        return int(quota[0]) / int(period[0])
    return None


def _memory_limit(directory: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        words = _words(directory / name)
        if words and words[0].isdigit() and int(words[0]) < _NO_LIMIT:
            return int(words[0])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _kilobytes(path: Path) -> dict[str, int]:
    """Return the lines of a file of /proc that end in kB, in bytes."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs}
