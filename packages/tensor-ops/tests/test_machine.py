"""The share of the processor and the memory that the process may use."""

import json
import os
import sys

import pytest

from tensor_ops import machine
from tensor_ops.__main__ import main

if sys.platform != "linux":
    pytest.skip("the files of Linux", allow_module_level=True)

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that lays out files of /proc and /sys, on a machine of 8 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(machine, "ROOT", tmp_path)

    def make(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("DOT", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return make


CGROUP = "proc__self__cgroup"
TOP = "sys__fs__cgroup__"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({CGROUP: "0::/\n"}, 8),
        ({CGROUP: "0::/a/b\n", f"{TOP}a__b__cpuDOTmax": "250000 100000\n"}, 3),
        ({CGROUP: "0::/a/b\n", f"{TOP}a__cpuDOTmax": "100000 100000\n"}, 1),
        ({CGROUP: "0::/a\n", f"{TOP}a__cpuDOTmax": "max 100000\n"}, 8),
        # in a container that sees only its own cgroup, under the path of the host
        ({CGROUP: "0::/docker/1\n", f"{TOP}cpuDOTmax": "200000 100000\n"}, 2),
        ({CGROUP: "0::/a\n", f"{TOP}a__cpuDOTmax": "5000 100000\n"}, 1),
        (
            {
                CGROUP: "3:cpu,cpuacct:/x\n0::/\n",
                f"{TOP}cpu__x__cpuDOTcfs_quota_us": "400000\n",
                f"{TOP}cpu__x__cpuDOTcfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                CGROUP: "3:cpu:/x\n",
                f"{TOP}cpu__x__cpuDOTcfs_quota_us": "-1\n",
                f"{TOP}cpu__x__cpuDOTcfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_cores_of_affinity_and_quota(files, cores, system):
    system(**files)
    assert machine.usable_cpus() == cores


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({CGROUP: "0::/a\n", f"{TOP}a__memoryDOTmax": "max\n"}, None),
        ({CGROUP: "0::/a\n", f"{TOP}a__memoryDOTmax": "1000000\n"}, 1000000),
        ({CGROUP: "0::/a/b\n", f"{TOP}a__memoryDOTmax": "7\n", f"{TOP}a__b__x": ""}, 7),
        (
            {CGROUP: "9:memory:/m\n", f"{TOP}memory__m__memoryDOTlimit_in_bytes": "5000\n"},
            5000,
        ),
        (
            {
                CGROUP: "9:memory:/m\n",
                f"{TOP}memory__m__memoryDOTlimit_in_bytes": "9223372036854771712\n",
            },
            None,
        ),
    ],
)
def test_memory_of_machine_and_cgroup(files, limit, system):
    system(**files)
    assert machine.usable_memory() == (limit or MEMORY)


def test_affinity_counts():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert machine.usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_memory_of_the_process_grows_with_what_it_holds():
    before = machine.memory_of_process()
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    after = machine.memory_of_process()
    assert after["used"] - before["used"] > 48 * 2**20
    assert after["peak"] >= after["used"]
    assert after["available"] > 0


def test_doctor_says_what_the_cgroup_allows(system, capsys):
    system(
        **{
            CGROUP: "0::/box\n",
            f"{TOP}box__cpuDOTmax": "150000 100000\n",
            f"{TOP}box__memoryDOTmax": f"{2**30}\n",
        }
    )
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["machine"]
    assert (facts["usable_cpus"], facts["memory"]) == (2, 2**30)


def test_the_cpp_backend_counts_the_same_cpus_and_memory():
    tensor_ops_cpp = pytest.importorskip("tensor_ops_cpp")
    found = tensor_ops_cpp.info()
    assert machine.usable_memory() == found["max_memory"]
    if "OMP_NUM_THREADS" not in os.environ:
        assert machine.usable_cpus() == found["compute_units"]
