"""Facts about this machine: the processor and the memory, and how much of them a process may use.

Limits of a cgroup or an affinity mask, as in a container, are taken into account, as the C++
backend does for its threads. None stands for what the system does not say.
"""

import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = [
    "Contention",
    "cpu_name",
    "facts",
    "memory_of_process",
    "processor",
    "total_memory",
    "usable_cpus",
    "usable_memory",
]

# Tests lay out files of /proc and /sys elsewhere.
ROOT = Path("/")
# In bytes; without a limit, version 1 of cgroups says a number next to 2**63.
NO_LIMIT = 2**60

# A measurement is disturbed if our threads waited for processors for the first fraction of its time
# while other processes kept the second number of processors busy.
LEAST_WAIT, LEAST_BUSY = 0.1, 0.25

# The instruction sets that kernels are compiled for, by their names in /proc/cpuinfo.
SIMD = (
    "sse4_2",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "asimd",
    "asimdhp",
    "sve",
)


def facts() -> dict[str, Any]:
    """Return what a measurement on this machine depends on."""
    import numpy as np

    flags = _cpuinfo("flags") or _cpuinfo("Features") or ""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": np.__version__,
        "os": platform.platform(),
        **processor(),
        "simd": [name for name in SIMD if name in flags.split()],
        "logical_cpus": os.cpu_count(),
        "memory": usable_memory(),
    }


def processor() -> dict[str, Any]:
    """Return what CPU this process runs on, and on how many of them."""
    return {
        "architecture": platform.machine(),
        "cpu": cpu_name(),
        "usable_cpus": usable_cpus(),
    }


def cpu_name() -> str | None:
    """Return what the processor calls itself."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() or None
    return _cpuinfo("model name") or platform.processor() or None


def usable_cpus() -> int:
    """Return the number of CPUs in the affinity mask, or the cgroup's quota where that is less."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    quotas = [_quota(directory) for directory in _cgroups("cpu")]
    return max(1, min([count, *(math.ceil(quota) for quota in quotas if quota)]))


def usable_memory() -> int | None:
    """Return the bytes of memory of the machine, or what a limit leaves where that is less.

    The limits are those of cgroups, and of the address space (``ulimit -v``).
    """
    limits = [_memory_limit(directory) for directory in _cgroups("memory")]
    found = [each for each in (total_memory(), *limits) if each]
    address_space = _left_address_space()
    return min(found if address_space is None else [*found, address_space], default=None)


def total_memory() -> int | None:
    """Return the bytes of memory of the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no such function
        return None


def memory_of_process() -> dict[str, int]:
    """Return how many bytes this process has in memory, had at most, and how many are left.

    Returns
    -------
    dict
        With the keys ``used``, ``peak`` and ``available``; without those that the system does not
        tell.
    """
    status, left = _kilobytes("proc/self/status"), _kilobytes("proc/meminfo")
    found = {"used": status.get("VmRSS"), "peak": status.get("VmHWM")}
    found["available"] = left.get("MemAvailable")
    return {key: value for key, value in found.items() if value is not None}


class Contention:
    """Whether other processes take processors from this one, from when this object is made."""

    def __init__(self) -> None:
        self._start = time.monotonic(), _seconds_waited(), _seconds_elsewhere()

    def is_seen(self) -> bool:
        """Return whether threads of this process waited for processors while others had them.

        False where the system does not tell. The own threads may wait for each other, and others
        may work on processors that nobody else wants: either alone says nothing.
        """
        start, waited, elsewhere = self._start
        seconds = time.monotonic() - start
        return (
            _seconds_waited() - waited > LEAST_WAIT * seconds
            and _seconds_elsewhere() - elsewhere > LEAST_BUSY * seconds
        )


def _seconds_waited() -> float:
    """Return for how long the threads of this process were ready to run and had no processor."""
    folder = ROOT / "proc/self/task"
    try:
        tasks = os.listdir(folder)
    except OSError:
        return 0.0
    # A thread may have ended in the meantime.
    texts = [_text(folder / task / "schedstat").split() for task in tasks]
    return sum(int(numbers[1]) for numbers in texts if numbers) / 1e9


def _seconds_elsewhere() -> float:
    """Return for how long the processors have worked for other processes, all added up."""
    words = _text(ROOT / "proc/stat").partition("\n")[0].split()
    if len(words) < 8:
        return 0.0
    user, nice, system, _, _, irq, softirq = map(int, words[1:8])
    own = os.times()
    busy = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return busy - (own.user + own.system + own.children_user + own.children_system)


def _cpuinfo(key: str) -> str | None:
    """Return the first value of a key in Linux's /proc/cpuinfo."""
    for line in _text(ROOT / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _cgroups(controller: str) -> list[Path]:
    """Return the directories of this process's cgroups, version 1 and 2, and of their ancestors.

    In a container the path may be the host's, while the container's own cgroup is the mount itself:
    what is not there is left out, and the mount is always looked at.
    """
    found = []
    for line in _text(ROOT / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0":
            mount = ROOT / "sys/fs/cgroup"
        elif controller in names.split(","):
            mount = ROOT / "sys/fs/cgroup" / controller
        else:
            continue
        own = mount / path.lstrip("/")
        found += [own, *(each for each in own.parents if each.is_relative_to(mount))]
    return [each for each in dict.fromkeys(found) if each.is_dir()]


def _quota(directory: Path) -> float | None:
    quota, period = [*_text(directory / "cpu.max").split(), "", ""][:2]
    if not period:
        quota = _text(directory / "cpu.cfs_quota_us").strip()
        period = _text(directory / "cpu.cfs_period_us").strip()
    # "max" or -1 where there is none
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _memory_limit(directory: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = _text(directory / name).strip()
        if limit.isdigit() and int(limit) < NO_LIMIT:
            return int(limit)
    return None


def _left_address_space() -> int | None:
    """Return the bytes that a process may still map, None without a limit."""
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    return max(0, limit - _kilobytes("proc/self/status").get("VmSize", 0))


def _kilobytes(name: str) -> dict[str, int]:
    """Return the lines of a file of /proc that end in kB, in bytes."""
    pairs = (line.split() for line in _text(ROOT / name).splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in pairs}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
