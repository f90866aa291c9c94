"""What the process may use of the CPU."""

import os

import pytest

from tensor_ops_torch.hardware import cpu

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that lays out files of /proc and /sys, on a machine of 8 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))

    def make(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("DOT", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

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
    assert cpu.allowed_cores(system(**files)) == cores


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
    assert cpu.allowed_memory(system(**files)) == (limit or MEMORY)


def test_the_facts_are_those_of_tensor_ops_cpp_and_the_system():
    tensor_ops_cpp = pytest.importorskip("tensor_ops_cpp")
    facts = cpu.cpu_facts()
    assert facts.name == tensor_ops_cpp.info()["device_name"]
    assert facts.isa == tensor_ops_cpp.get_optimization_info()["cpu_levels"][-1]
    assert 1 <= facts.cores <= len(os.sched_getaffinity(0))
    assert 0 < facts.memory <= MEMORY


def test_affinity_counts():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert cpu.allowed_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_without_tensor_ops_cpp_the_system_names_the_processor(monkeypatch):
    monkeypatch.setattr(cpu, "_of_tensor_ops_cpp", lambda: (None, None))
    facts = cpu.cpu_facts()
    assert facts.name
    assert facts.isa is None


def test_memory_of_the_process_grows_with_what_it_holds():
    before = cpu.memory_of_process()
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    after = cpu.memory_of_process()
    assert after["used"] - before["used"] > 48 * 2**20
    assert after["peak"] >= after["used"]
    assert after["available"] > 0
