"""Memory sampled in the background."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tensor_ops.extension import did_you_mean, warn_caller
from tensor_ops_devices.hardware.settings import number

__all__ = ["MemoryBudgetWarning", "MemoryMonitor", "MemorySample"]


class MemoryBudgetWarning(RuntimeWarning):
    """More memory was in use than the configuration allows."""


class MemorySample(NamedTuple):
    """What `get_memory_stats` returned, and when.

    Attributes
    ----------
    seconds : float
        Since the monitor was started.
    stats : dict
    """

    seconds: float
    stats: dict[str, float]


class MemoryMonitor:
    """A thread that reads memory statistics at an interval, between ``with`` and its end.

    The first sample is taken at the start and, unless the duration was over before, the last one at
    the end.

    Parameters
    ----------
    read : callable
        Returns the statistics, as `get_memory_stats`.
    interval_seconds : float
    duration_seconds : float or None
        When to stop by itself; None for not before the end.
    retention_seconds : float or None
        For how long samples are kept; None for all of them.
    budget_mb : float or None
        Where ``allocated`` is above this, the end warns with MemoryBudgetWarning.

    Examples
    --------
    >>> from tensor_ops_devices.backends.cpu import CPUBackend
    >>> with CPUBackend().monitor(interval_seconds=0.01) as monitor:
    ...     total = sum(range(1000))
    >>> monitor.peak("allocated") > 0
    True
    """

    def __init__(
        self,
        read: Callable[[], dict[str, float]],
        *,
        interval_seconds: float = 1.0,
        duration_seconds: float | None = None,
        retention_seconds: float | None = None,
        budget_mb: float | None = None,
    ) -> None:
        self._read = read
        self.interval_seconds = number(0)("interval_seconds", interval_seconds)
        self.duration_seconds = number(0, optional=True)("duration_seconds", duration_seconds)
        self.retention_seconds = number(0, optional=True)("retention_seconds", retention_seconds)
        self.budget_mb = number(0, optional=True)("budget_mb", budget_mb)
        self._samples: deque[MemorySample] = deque()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._start = 0.0

    @property
    def samples(self) -> list[MemorySample]:
        """The samples that are kept, the oldest first."""
        return list(self._samples)

    @property
    def is_running(self) -> bool:
        """Whether samples are being taken."""
        return self._thread is not None and self._thread.is_alive()

    def peak(self, key: str) -> float:
        """Return the highest value of one statistic in the samples that are kept.

        Raises
        ------
        RuntimeError
            If nothing was sampled yet.
        KeyError
            If there is no such statistic.
        """
        if not self._samples:
            raise RuntimeError("MemoryMonitor.peak: nothing was sampled yet; enter it with `with`")
        samples = self.samples
        known = samples[0].stats
        if key not in known:
            raise KeyError(
                f"MemoryMonitor.peak: there is no statistic {key!r}; {did_you_mean(key, known)}"
                f"expected one of {', '.join(known)}"
            )
        return max(each.stats[key] for each in samples)

    def __enter__(self) -> MemoryMonitor:
        if self._thread is not None:
            raise RuntimeError("MemoryMonitor: it was used already; make another one")
        self._start = time.monotonic()
        self._sample()  # here, so that what is wrong with reading is raised here
        self._thread = threading.Thread(target=self._run, name="memory monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        was_running = self.is_running
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if kind is not None:
            return
        if self._error is not None:
            raise self._error
        if was_running:
            self._sample()
        if self.budget_mb is not None and (peak := self.peak("allocated")) > self.budget_mb:
            warn_caller(
                f"{peak:.0f} MB were in use, the configuration allows {self.budget_mb:.0f} MB; "
                "lower the batch size or raise the fraction",
                MemoryBudgetWarning,
            )

    def _run(self) -> None:
        ticks = 1
        while True:
            due = self._start + ticks * self.interval_seconds
            if self.duration_seconds is not None:
                due = min(due, self._start + self.duration_seconds)
            if self._ended.wait(max(0.0, due - time.monotonic())):
                return
            try:
                self._sample()
            except Exception as error:  # raised where the monitor ends
                self._error = error
                return
            passed = time.monotonic() - self._start
            if self.duration_seconds is not None and passed >= self.duration_seconds:
                return
            ticks = int(passed / self.interval_seconds) + 1  # what was missed is not made up for

    def _sample(self) -> None:
        sample = MemorySample(time.monotonic() - self._start, self._read())
        self._samples.append(sample)
        if self.retention_seconds is not None:
            while self._samples[0].seconds < sample.seconds - self.retention_seconds:
                self._samples.popleft()
