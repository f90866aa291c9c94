"""Memory that ranks share by a file; each rank is a thread here."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tensor_ops_decode.ranks.mapped_window import mapped_window

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be removed")


def windows(world_size, num_bytes, folder):
    """Return the windows of ranks that are threads."""
    barrier, given = threading.Barrier(world_size, timeout=60), [None] * world_size

    def run(rank):
        def gathered(value):
            given[rank] = value
            barrier.wait()
            found = given.copy()
            barrier.wait()
            return found

        return mapped_window(num_bytes, rank, gathered, folder)

    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(run, range(world_size)))


def test_what_one_writes_all_see(tmp_path):
    first, second, third = windows(3, 1000, tmp_path)
    assert not first.any()
    assert len(first) == 1000
    assert first.ctypes.data % 64 == 0
    second[7] = 5
    np.testing.assert_array_equal(first, third)
    assert first[7] == 5
    assert not list(tmp_path.iterdir())  # nobody keeps the file


def test_without_memory_no_rank_has_a_window(monkeypatch, tmp_path):
    def fail(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "posix_fallocate", fail, raising=False)
    assert windows(2, 1000, tmp_path) == [None, None]
    assert not list(tmp_path.iterdir())
