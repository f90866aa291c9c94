"""A rank that fails in one of many ways: all ranks end soon, and a message says which and why."""

import os
import re
import signal
import time

import pytest

PROGRAM = __file__.replace("test_faults", "rank_program")
SECONDS = 100
# Faults of a rank, and what is said of each, at least once.
MESSAGES = {
    "SIGKILL": r"rank 1|rank +: 1",
    "SIGKILL, unawaited": r"rank 1|rank +: 1",
    "SIGSEGV": r"rank 1|rank +: 1",
    "_exit": r"rank 1",
    "SIGSTOP": r"tensor-ops: rank 1 did not come .*TENSOR_OPS_RANK_DEADLINE; its process \d+ was st"
    r"opped by a signal, and is killed; all ranks end",
    "SIGINT": r"KeyboardInterrupt\s+tensor-ops: rank 1 of 2 has failed; all ranks end",
    "exception": r"ValueError: a mistake of the program\s+tensor-ops: rank 1 of 2 has failed; all",
    "exit": r"rank 1 has ended, while others|rank 1, the process \d+, has ended|exitcode +: 3",
    "end": r"rank 1 has ended, while others|rank 1, the process \d+, has ended",
    "another step": r"RankError: rank 1 is about to run another step than the others",
    "another limit": r"RankError: rank 1 has another limits than rank 0: .*_batched_tokens 64",
    "another size": r"ValueError: world_size is 5, but .* has started 2 ranks; leave it out, or",
    "no memory": r"MemoryError: no memory for the weights\s+tensor-ops: rank 1 of 2 has failed",
}
SAMPLE = ["SIGKILL", "exception"]
NOTICED_ALIKE = ["SIGKILL, unawaited", "SIGSEGV", "SIGINT", "exit", "another size", "no memory"]


@pytest.mark.parametrize("how", SAMPLE)
def test_all_ranks_end(launcher, how, request, tmp_path):
    if launcher.name == "torchrun" and not request.config.getoption("--nightly"):
        pytest.skip("it takes long to start: --nightly runs it")
    check(launcher, how, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("how", [how for how in MESSAGES if how not in SAMPLE])
def test_all_ranks_end_by_every_fault(launcher, how, tmp_path):
    if launcher.name == "torchrun" and how in NOTICED_ALIKE:
        pytest.skip("it takes long to start, and notices the exception in the same way")
    check(launcher, how, tmp_path)


@pytest.mark.nightly
def test_ctrl_c_ends_all_ranks(launcher, tmp_path):
    started = launcher.start(2, PROGRAM, tmp_path, "nothing")
    end = time.monotonic() + SECONDS
    while not (tmp_path / "failed").exists():
        assert time.monotonic() < end
        assert started.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    asked = time.monotonic()
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does
    started.communicate(timeout=SECONDS)
    assert started.returncode != 0
    while any(is_there(int(each.read_text())) for each in tmp_path.glob("process.*")):
        assert time.monotonic() - asked < launcher.seconds
        time.sleep(0.02)
    assert time.monotonic() - asked < launcher.seconds


def check(launcher, how, tmp_path):
    """Run ranks of which one fails, and look at what is left of them."""
    started = launcher.start(
        2, PROGRAM, tmp_path, how, environment={"TENSOR_OPS_RANK_DEADLINE": "3"}
    )
    _, err = started.communicate(timeout=SECONDS)
    assert started.returncode != 0, err
    assert re.search(MESSAGES[how], err), err
    seconds = time_since_fault(tmp_path) - (3 if how == "SIGSTOP" else 0)
    processes = [int(each.read_text()) for each in tmp_path.glob("process.*")]
    assert len(processes) == 2
    while any(map(is_there, processes)):
        seconds = time_since_fault(tmp_path)
        assert seconds < 3 * launcher.seconds
        time.sleep(0.02)
    assert seconds < launcher.seconds
    assert err.count("; all ranks end") <= 1


def time_since_fault(folder):
    return time.time() - float((folder / "failed").read_text())


def is_there(process):
    try:
        os.kill(process, 0)  # which only asks
    except ProcessLookupError:
        return False
    return True
