"""Nodes that exchange values among ranks, which are threads here, on every executor."""

import functools
import threading

import numpy as np
import pytest

from exchanging_programs import COLUMNS, LIMITS, LOGITS, WORDS, compiled, fill, shard, shards
from tensor_ops_decode.errors import ProgramError
from thread_ranks import Shared, at_once

WORLD_SIZES = [2, 3, 4, 9]


def expected(all_shards, tokens, selected):
    rows = [tensors["given"][tokens] for _, tensors in all_shards]
    parts = [tensors["part"][np.asarray(tokens)[list(selected)]] for _, tensors in all_shards]
    return functools.reduce(np.add, rows), np.concatenate(parts, axis=1)


@pytest.fixture
def runs(executor):
    """An executor that runs these programs; cuda's are in its own tests."""
    if executor.__name__ == "tensor_ops_cuda":
        pytest.skip("it has no tables of float32")
    return executor


@pytest.mark.parametrize("has_window", [True, False], ids=["window", "exchange"])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_all_ranks_have_the_sums_in_order_of_ranks(runs, world_size, has_window):
    """And the columns side by side, bit for bit, in many steps of different rows."""
    all_shards = shards(world_size, num_sums=2)
    draw = np.random.default_rng(world_size)
    steps = []
    for _ in range(12):
        tokens = draw.integers(0, WORDS, draw.integers(1, LIMITS.max_tokens + 1))
        count = draw.integers(0, len(tokens) + 1)
        selected = np.sort(draw.choice(len(tokens), count, replace=False))
        steps.append((tokens, selected))

    def run(ranks):
        executable = compiled(runs, *all_shards[ranks.rank], ranks, num_workers=1 + ranks.rank % 3)
        for tokens, selected in steps:
            fill(executable, tokens, selected)
            executable.run(len(tokens), len(selected))
            total, logits = expected(all_shards, tokens, selected)
            for name in ("sum 0", "sum 1"):
                assert np.array_equal(executable.arrays[name][: len(tokens)], total)
            found = executable.arrays["selected sum"][: len(selected)]
            assert np.array_equal(found, total[selected])
            assert np.array_equal(executable.arrays["logits"][: len(selected)], logits)
        return executable

    for executable in at_once(run, Shared(world_size, has_window=has_window).ranks()):
        if isinstance(executable, BaseException):
            raise executable
        executable.close()


@pytest.mark.parametrize("world_size", [2, 5])
def test_steps_in_a_row_choose_the_same_tokens(cpp, world_size):
    import tensor_ops_cpp

    all_shards = shards(world_size, chooses=True)
    tables = np.concatenate([tensors["part"] for _, tensors in all_shards], axis=1)
    chain = [3]
    for _ in range(9):
        chain.append(int(np.argmax(tables[chain[-1]][:WORDS])))
    # Words beyond the table cannot be fed; they are no candidates here.
    for rank, (_, tensors) in enumerate(all_shards):
        begin = LOGITS * rank // world_size
        tensors["part"][:, np.arange(begin, begin + tensors["part"].shape[1]) >= WORDS] = -9

    def run(ranks):
        executable = compiled(tensor_ops_cpp, *all_shards[ranks.rank], ranks, num_workers=2)
        fill(executable, chain[:1], [0])
        return executable.run_steps(1, 9, "next", [[]])

    for found in at_once(run, Shared(world_size).ranks()):
        assert found.tolist() == [[token] for token in chain[1:]]


def test_profiles_and_searches_for_nan_exchange_too(cpp):
    """The search finds the first node on any rank, on all ranks."""
    import tensor_ops_cpp

    all_shards = shards(3)
    all_shards[1][1]["given"][4, 7] = np.nan
    nodes = [node.name for node in all_shards[0][0].nodes]

    def run(ranks):
        executable = compiled(tensor_ops_cpp, *all_shards[ranks.rank], ranks, num_workers=2)
        fill(executable, [4, 5], [1])
        profile = executable.profile(2, 1)
        assert profile["work"].shape == (2, len(nodes))
        return executable.first_nan(2, 1, 0)

    found = at_once(run, Shared(3).ranks())
    assert [nodes[each] for each in found] == ["rows of given"] * 3


def test_ranks_count_the_memory_of_exchanges(cpp):
    import tensor_ops_cpp

    all_shards = shards(2)
    text = all_shards[0][0].to_json()

    def run(ranks):
        executable = compiled(tensor_ops_cpp, *all_shards[ranks.rank], ranks)
        return executable.memory

    ranks = Shared(2).ranks()
    found = at_once(run, ranks)[0]
    assert found == tensor_ops_cpp.program_memory(text, ranks=ranks[0])
    # Vectors of all tokens: one that is sent, and one of each rank.
    assert found["exchange"] >= 3 * LIMITS.max_tokens * COLUMNS * 4
    whole, _ = shard(0, 1)
    assert "exchange" not in tensor_ops_cpp.program_memory(whole.to_json())


def test_a_rank_that_sleeps_costs_no_processor(cpp):
    """One that waits for long has used little time of a processor, and asks whether to go on."""
    import time

    import tensor_ops_cpp

    all_shards = shards(2)
    all_ranks = Shared(2).ranks()
    waiting = threading.Event()

    def run(ranks):
        executable = compiled(tensor_ops_cpp, *all_shards[ranks.rank], ranks, num_workers=1)
        fill(executable, [1], [0])
        if ranks.rank == 1:
            waiting.wait(20)
            time.sleep(0.6)
        else:
            waiting.set()
        before = time.thread_time()
        executable.run(1, 1)
        return time.thread_time() - before

    used = at_once(run, all_ranks)
    assert used[0] < 0.3
    assert 2 <= all_ranks[0].times_asked <= 14
    assert all_ranks[0].missing == (1,)


def test_a_program_that_is_not_the_shard_of_its_rank_is_refused(runs):
    program, tensors = shard(0, 3)
    ranks = Shared(2).ranks()[1]
    with pytest.raises((ProgramError, ValueError)) as caught:
        compiled(runs, program, tensors, ranks)
    assert str(caught.value) == (
        "allgather 'logits': x must have 17 columns on rank 1 of 2, got 11"
    )
    with pytest.raises((ProgramError, ValueError), match="must have 33 columns on rank 0 of 1"):
        compiled(runs, program, tensors, None)
