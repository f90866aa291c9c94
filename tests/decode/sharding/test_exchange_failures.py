"""Exchanges that fail: each rank ends with an error that says which rank, and why."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from exchanging_programs import LIMITS, compiled, fill, shard, shards
from tensor_ops_decode import Builder, Tensor
from tensor_ops_decode.errors import RankError
from thread_ranks import Shared, ThreadRanks, at_once

tensor_ops_cpp = pytest.importorskip("tensor_ops_cpp")
pytestmark = pytest.mark.usefixtures("cpp")


def executables(all_shards, all_ranks, **given):
    return at_once(
        lambda ranks: compiled(tensor_ops_cpp, *all_shards[ranks.rank], ranks, **given), all_ranks
    )


def step_of(all_executables, tokens=([1],), selected=(0,)):
    """Step all but those that are None, each with its tokens; return what each has raised."""

    def run(ranks):
        executable = all_executables[ranks.rank]
        if executable is not None:
            mine = tokens[min(ranks.rank, len(tokens) - 1)]
            fill(executable, mine, selected)
            executable.run(len(mine), len(selected))

    return at_once(run, Shared(len(all_executables)).ranks())


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_rank_that_does_not_come_ends_all_others(num_workers):
    """Whoever gives up first tells why to the others, which end at once."""
    shared = Shared(3, deadline=0.3)
    made = executables(shards(3), shared.ranks(), num_workers=num_workers)
    absent, made[2] = made[2], None
    start = time.monotonic()
    errors = step_of(made)
    assert time.monotonic() - start < 5
    assert errors[2] is None
    assert all(isinstance(error, RankError) for error in errors[:2])
    own = [str(error) for error in errors[:2] if str(error) == "ranks (2,) do not come"]
    told = [str(error) for error in errors[:2] if "has failed: RankError: ranks (2,)" in str(error)]
    assert len(own) >= 1
    assert len(own) + len(told) == 2

    for executable in made[:2]:
        fill(executable, [1], [0])
        for call in (executable.run, executable.profile):
            with pytest.raises(RuntimeError, match=r"an earlier step failed: .*; compile the"):
                call(1, 1)
    start = time.monotonic()
    fill(absent, [1], [0])
    with pytest.raises(RankError, match=r"rank [01] has failed: RankError: ranks \(2,\) do not"):
        absent.run(1, 1)
    assert time.monotonic() - start < 5
    for executable in (*made[:2], absent):
        executable.close()


def test_a_rank_that_runs_another_step_is_found():
    errors = step_of(executables(shards(2), Shared(2).ranks()), tokens=([1, 2], [1, 3]))
    for rank, error in enumerate(errors):
        assert isinstance(error, RankError)
        assert error.rank == 1 - rank
        assert str(error) == (
            f"at node 1 of its step 1 with 2 rows of 40 columns, the tokens, positions, slots or "
            f"selected rows of rank {1 - rank} are not those of rank {rank}; all ranks must run "
            "the same steps of the same model"
        )
    errors = step_of(executables(shards(2), Shared(2).ranks()), tokens=([1, 2], [1]))
    assert "rank 1 is at node 1 of its step 1 with 1 rows of 40 columns, and rank 0" in str(
        errors[0]
    )


def test_a_rank_that_runs_another_step_is_found_without_a_window():
    all_ranks = Shared(2, has_window=False).ranks()
    errors = step_of(executables(shards(2), all_ranks), tokens=([1, 2], [1, 3]))
    assert [error.rank for error in errors] == [1, 0]


def test_ranks_of_other_programs_are_found():
    all_shards = [shard(0, 2), shard(1, 2, num_sums=2)]
    errors = step_of(executables(all_shards, Shared(2).ranks()), selected=[0])
    assert all(isinstance(error, RankError) for error in errors)
    assert "all ranks must run the same steps of the same model" in str(errors[0])


def test_a_rank_that_closes_ends_the_wait_of_others():
    made = executables(shards(2), Shared(2).ranks())
    closer, made[1] = made[1], None
    timer = threading.Timer(0.1, closer.close)
    timer.start()
    errors = step_of(made)
    timer.join()
    assert str(errors[0]) == "rank 1 has closed its executable"
    assert errors[0].rank == 1
    with pytest.raises(RuntimeError, match="closed"):
        closer.run(1, 1)


def test_a_rank_that_cannot_compile_tells_the_others():
    """The packing of its weights is interrupted; another rank waits for it in the first step."""
    all_ranks = Shared(2).ranks()
    waiting = compiled(tensor_ops_cpp, *shard(0, 2), all_ranks[0])
    builder, tensors = Builder(LIMITS), {}
    for name, shape in {"table": (29, 32), "weight": (40, 32)}.items():
        builder.tensor(name, Tensor("f32", shape, {"attached": True}))
        tensors[name] = np.ones(shape, np.float32)
    builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    builder.add("linear", {"x": "x"}, {"weight": "weight"}, output="y")
    builder.add("allreduce", {"x": "y"}, output="z")

    def progress(done, size):
        raise OSError("no weights")

    with pytest.raises(OSError, match="no weights"):
        compiled(tensor_ops_cpp, builder.program(["z"]), tensors, all_ranks[1], progress=progress)
    fill(waiting, [1], [0])
    with pytest.raises(RankError, match="rank 1 has failed: OSError: no weights"):
        waiting.run(1, 1)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals need it"
)
def test_ctrl_c_ends_the_wait(request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    shared = Shared(2)
    made = executables(shards(2), shared.ranks())
    fill(made[0], [1], [0])
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        made[0].run(1, 1)
    timer.join()
    assert time.monotonic() - start < 5
    with pytest.raises(RuntimeError, match="an earlier step failed: KeyboardInterrupt"):
        made[0].run(1, 1)
    fill(made[1], [1], [0])
    with pytest.raises(RankError, match="rank 0 has failed: KeyboardInterrupt"):
        made[1].run(1, 1)


@pytest.mark.parametrize("has_window", [True, False], ids=["window", "exchange"])
def test_errors_of_the_ranks_are_those_of_the_step(has_window):
    class Broken(ThreadRanks):
        def exchange(self, send, receive):
            raise ZeroDivisionError("of the test")

        def while_waiting(self, seconds, ranks):
            raise ZeroDivisionError("of the test")

    executable = compiled(tensor_ops_cpp, *shard(0, 2), Broken(Shared(2, has_window=has_window), 0))
    fill(executable, [1], [0])
    with pytest.raises(ZeroDivisionError, match="of the test"):
        executable.run(1, 1)
    with pytest.raises(RuntimeError, match="an earlier step failed: ZeroDivisionError: of the"):
        executable.run(1, 1)


WRONG = {
    "an object": (object(), TypeError, "ranks must be a RankGroup or None, got object, which has"),
    "a number": (2, TypeError, "ranks must be a RankGroup or None, got int, which has"),
}


@pytest.mark.parametrize("ranks", WRONG.values(), ids=WRONG)
def test_what_are_no_ranks_is_refused(ranks):
    given, error, message = ranks
    with pytest.raises(error, match=message):
        compiled(tensor_ops_cpp, *shard(0, 2), given)
    with pytest.raises(error, match="program_memory: ranks must be a RankGroup"):
        tensor_ops_cpp.program_memory(shard(0, 2)[0].to_json(), ranks=given)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rank": 2}, ValueError, "ranks.rank must be below ranks.world_size, got 2 of 2"),
        ({"rank": "0"}, TypeError, "which has no int 'rank' from 0 on"),
        ({"rank": -1}, TypeError, "which has no int 'rank' from 0 on"),
        ({"world_size": 0}, ValueError, "got 0 of 0"),
        ({"exchange": None}, TypeError, "which has no method 'exchange'"),
        ({"window": lambda size: b""}, TypeError, r"must return None or \d+ writable bytes"),
        ({"window": lambda size: np.zeros(64, np.uint8)}, TypeError, "got 64 bytes"),
        ({"window": lambda size: np.zeros(size, np.float32)}, TypeError, "an array of float32"),
    ],
)
def test_wrong_ranks_are_refused(change, error, message):
    ranks = Shared(2).ranks()[0]
    for name, value in change.items():
        setattr(ranks, name, value)
    with pytest.raises(error, match=message):
        compiled(tensor_ops_cpp, *shard(0, 2), ranks)
