"""Memory that is sampled in the background."""

import threading
import time

import pytest

import tensor_ops
from tensor_ops_devices.backends.cpu import CPUBackend
from tensor_ops_devices.backends.monitor import MemoryBudgetWarning, MemoryMonitor


def stats(*values):
    """Return a function that returns the values one after the other, then the last one for ever."""
    left = list(values)
    return lambda: {"allocated": left.pop(0) if len(left) > 1 else left[0]}


def test_a_monitor_samples_at_its_interval():
    with MemoryMonitor(stats(1.0, 5.0, 2.0), interval_seconds=0.02) as monitor:
        while len(monitor.samples) < 4:
            time.sleep(0.01)
        assert monitor.is_running
    assert not monitor.is_running
    times = [each.seconds for each in monitor.samples]
    # One at each multiple of the interval at most, and those of the start and the end.
    assert len(times) <= times[-1] / 0.02 + 2
    assert times == sorted(times)
    assert monitor.samples[0].stats == {"allocated": 1.0}
    assert monitor.peak("allocated") == 5.0
    with pytest.raises(KeyError, match=r"'alocated'; did you mean 'allocated'\? expected one of"):
        monitor.peak("alocated")


def test_a_monitor_stops_by_itself_after_its_duration():
    with MemoryMonitor(stats(1.0), interval_seconds=0.01, duration_seconds=0.05) as monitor:
        while monitor.is_running:
            time.sleep(0.01)
        count = len(monitor.samples)
    assert len(monitor.samples) == count
    assert monitor.samples[-2].seconds < 0.05 <= monitor.samples[-1].seconds


def test_a_monitor_forgets_after_its_retention():
    with MemoryMonitor(stats(1.0), interval_seconds=0.01, retention_seconds=0.05) as monitor:
        time.sleep(0.3)
    times = [each.seconds for each in monitor.samples]
    assert times[0] > 0.1
    assert times[-1] - times[0] <= 0.05


def test_a_monitor_warns_of_too_much():
    with (
        pytest.warns(MemoryBudgetWarning, match="7 MB were in use, the configuration allows 5"),
        MemoryMonitor(stats(1.0, 7.0), interval_seconds=60, budget_mb=5),
    ):
        pass
    with MemoryMonitor(stats(1.0, 4.0), interval_seconds=60, budget_mb=5):
        pass


def test_an_error_of_reading_is_raised_where_the_monitor_ends():
    def read():
        if threading.current_thread() is threading.main_thread():
            return {"allocated": 1.0}
        raise OSError("no more")

    monitor = MemoryMonitor(read, interval_seconds=0.01)
    monitor.__enter__()
    while monitor.is_running:
        time.sleep(0.001)
    with pytest.raises(OSError, match="no more"):
        monitor.__exit__(None, None, None)


def test_a_monitor_is_used_once_and_its_settings_are_checked():
    monitor = MemoryMonitor(stats(1.0))
    with pytest.raises(RuntimeError, match="nothing was sampled yet"):
        monitor.peak("allocated")
    with monitor:
        pass
    with pytest.raises(RuntimeError, match="was used already"), monitor:
        pass
    with pytest.raises(tensor_ops.ConfigError, match="interval_seconds is 0"):
        CPUBackend().monitor(interval_seconds=0)
