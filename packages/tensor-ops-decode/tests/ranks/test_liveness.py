"""Whether processes are seen to be there, stopped or ended."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tensor_ops_decode.ranks.liveness import process_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@pytest.fixture
def child():
    """A process that sleeps, and a description of it."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as made:
        yield made, process_of(made.pid)
        made.kill()


def test_this_process_is_there():
    own = process_of(os.getpid())
    assert own.number == os.getpid()
    assert own.is_here
    assert not own.has_ended
    assert not own.is_stopped


def test_processes_share_processors_unless_they_are_bound_to_others():
    own = process_of(os.getpid())
    assert own.shares_processors(own)
    assert own._replace(processors=()).shares_processors(own)
    assert not own.shares_processors(own._replace(processors=(max(own.processors) + 1,)))
    assert not own.shares_processors(own._replace(machine="another"))


def test_another_process_that_has_its_number_is_another():
    assert process_of(os.getpid())._replace(start="1").has_ended


def test_a_process_of_another_machine_is_not_judged():
    there = process_of(os.getpid())._replace(machine="another", start="1")
    assert not there.is_here
    assert not there.has_ended
    there.kill()  # which does nothing


def test_a_process_that_is_stopped_can_be_killed(child):
    made, process = child
    assert not process.has_ended
    os.kill(made.pid, signal.SIGSTOP)
    assert _becomes_true(lambda: process.is_stopped)
    process.kill()
    assert _becomes_true(lambda: process.has_ended)  # before anyone has waited for it
    made.wait()
    assert process.has_ended


def _becomes_true(check):
    end = time.monotonic() + 10
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
