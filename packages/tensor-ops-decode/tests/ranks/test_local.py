"""Kernels of one process that share a model."""

import contextlib
from functools import partial

import numpy as np
import pytest

from tensor_ops import PersistentKernel
from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.deadline import VARIABLE
from tensor_ops_decode.ranks.local import LocalRanks

PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture
def kernels(runner):
    """A function that makes the kernels of all ranks, compiled, and closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(world_size, **arguments):
            arguments = {"backend": runner, "max_seq_length": 64, "num_workers": 1} | arguments
            made = [
                stack.enter_context(
                    PersistentKernel(world_size=world_size, mpi_rank=rank, **arguments)
                )
                for rank in range(world_size)
            ]
            for each in made:
                each.compile()
            return made

        yield make


def texts(made, calls, **sampling):
    """Return the tokens of each rank, of a request that all have."""
    for each in made:
        each.add_request(PROMPT, **sampling)
    for _ in range(calls):
        for each in made:
            each()
    return [each.tokens(0) for each in made]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_all_ranks_say_what_one_says(kernels, world_size):
    (one,) = kernels(1)
    made = kernels(world_size)
    expected, found = texts([one], 6), texts(made, 6)
    assert found == expected * world_size
    logits = [each.logits(0) for each in made]
    for each in logits:
        np.testing.assert_array_equal(each, logits[0])
        np.testing.assert_allclose(each, one.logits(0), atol=1e-4)


def test_a_rank_may_be_ahead(kernels):
    first, second = kernels(2)
    for each in (first, second):
        each.add_request(PROMPT)
    steps = [first() for _ in range(5)]
    assert [second() for _ in range(5)] == steps
    # The one that is called first may be another each time.
    steps = [second(), second()]
    assert [first(), first()] == steps


def test_rows_of_steps_have_the_same_length(kernels):
    first, second = kernels(2)
    for each in (first, second):
        each.add_request(PROMPT)
    rows = [first.run(8, max_seconds=0.02), first.run(8, max_seconds=0.02)]
    assert [second.run(8, max_seconds=0.0), second.run(8, max_seconds=1.0)] == rows


def test_a_step_needs_all_ranks(runner):
    first = PersistentKernel(backend=runner, world_size=3, mpi_rank=0, max_seq_length=64)
    second = PersistentKernel(backend=runner, world_size=3, mpi_rank=1, max_seq_length=64)
    with first, second:
        first.compile()
        message = (
            "all 3 ranks of this process: rank 1 is not compiled, rank 2 is not compiled; make"
        )
        with pytest.raises(RankError, match=message):
            first()


def test_a_rank_that_cannot_be_compiled_has_left(runner):
    arguments = {"backend": runner, "world_size": 2, "max_seq_length": 64}

    def fail(done, size):
        raise MemoryError("no room")

    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(PersistentKernel(mpi_rank=rank, **arguments))
            for rank in (0, 1, 0, 1)
        ]
        made[0].compile()
        with pytest.raises(MemoryError, match="no room"):
            made[1].compile(progress=fail)
        with pytest.raises(RankError, match="rank 1 is closed"):
            made[0]()
        for each in made[2:]:
            each.compile()
        assert made[2]() == made[3]()


def test_layers_by_hand_may_be_those_of_a_rank(runner):
    """Each rank has half of the columns of a matrix, and adds up what both have."""
    random = np.random.default_rng(0)
    table, matrix = (random.standard_normal((16, 16)).astype(np.float32) for _ in range(2))

    def kernel(world_size, rank):
        made = PersistentKernel(
            backend=runner, world_size=world_size, mpi_rank=rank, max_seq_length=16
        )
        tokens, rows = made.explain().limits.max_tokens, made.explain().limits.max_requests
        columns = slice(rank * 16 // world_size, (rank + 1) * 16 // world_size)
        halves = np.ascontiguousarray(table[:, columns]), np.ascontiguousarray(matrix[:, columns])
        embedding, weight = (
            made.attach_input(each, name=name)
            for name, each in zip(("table", "matrix"), halves, strict=True)
        )
        values = [(tokens, halves[0].shape[1]), (tokens, 16), (tokens, 16), (rows, 16)]
        x, share, added, last = (
            made.new_tensor(dims, name=f"value{number}") for number, dims in enumerate(values)
        )
        made.embed_layer(weight=embedding, output=x)
        made.linear_layer(input=x, weight=weight, output=share)
        made.allreduce_layer(input=share, output=added)
        made.select_layer(input=added, output=last)
        made.argmax_layer(input=last, output=made.new_tensor((rows, 1), "int32", name="next"))
        return made

    with contextlib.ExitStack() as stack:
        one = stack.enter_context(kernel(1, 0))
        both = [stack.enter_context(kernel(2, rank)) for rank in range(2)]
        for each in (one, *both):
            each.compile()
            each.add_request(PROMPT)
        for _ in range(4):
            expected = one()
            assert [each() for each in both] == [expected, expected]
        assert both[0].explain().shares is None


def test_a_closed_rank_ends_the_others(kernels):
    first, second = kernels(2)
    first()
    second.close()
    with pytest.raises(RankError, match="rank 1 is closed"):
        first()


def test_kernels_of_a_model_are_put_together_in_order(runner):
    ranks = [0, 0, 1, 1]
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(
                PersistentKernel(backend=runner, world_size=2, mpi_rank=rank, max_seq_length=64)
            )
            for rank in ranks
        ]
        for each in made:
            each.compile()
        made[0].add_request([1])
        made[1].add_request([2])
        made[2].add_request([1])
        made[3].add_request([2])
        assert made[2]() == made[0]()
        assert made[1]() == made[3]()


def test_other_arguments_of_a_rank_are_an_error(runner):
    first = PersistentKernel(backend=runner, world_size=2, mpi_rank=0, max_seq_length=64)
    second = PersistentKernel(backend=runner, world_size=2, mpi_rank=1, max_seq_length=32)
    with first, second:
        first.compile()
        message = (
            "rank 1 has another limits than rank 0: max_seq_length 32, .* not max_seq_length 64"
        )
        with pytest.raises(RankError, match=message):
            second.compile()
        with pytest.raises(RankError, match="rank 1 has another limits"):
            first()


def test_other_requests_of_a_rank_are_an_error(kernels):
    first, second = kernels(2)
    first.add_request([1, 2])
    second.add_request([1, 3])
    first()
    with pytest.raises(RankError, match="rank 1 is about to run another step than the other ranks"):
        second()


class Executable:
    """Gives a number to all ranks in each step, and writes what they have given."""

    def __init__(self, ranks, number):
        self.ranks, self.number = ranks, number
        self.arrays = new_arrays()

    def run(self, num_tokens, num_selected):
        received = np.empty((self.ranks.world_size, 1), np.float32)
        self.ranks.exchange(np.array([self.number], np.float32), received)
        self.arrays["tokens"][:] = -1  # which is nobody's but this executable's
        self.arrays["next"][:num_selected, 0] = received.sum()

    def close(self):
        """Do nothing."""


class Failing(Executable):
    """Fails before it has given anything."""

    def run(self, num_tokens, num_selected):
        raise MemoryError("no room")


class Absent(Executable):
    """Exchanges nothing."""

    def run(self, num_tokens, num_selected):
        """Do nothing."""


def new_arrays():
    return {
        name: np.zeros(2, np.int32) for name in ("tokens", "positions", "slots", "selected")
    } | {
        "edited_tokens": np.zeros((2, 2), np.int32),
        "edit_biases": np.zeros((2, 2), np.float32),
        "edit_penalties": np.zeros((2, 2), np.float32),
        "num_edits": np.zeros(2, np.int32),
        "page_table": np.zeros((2, 2), np.int32),
        "next": np.zeros((2, 1), np.int32),
    }


def compiled(*kinds):
    """Return ranks with executables of these kinds, and what their kernels would have."""
    ranks = [LocalRanks(rank, len(kinds), "executables") for rank in range(len(kinds))]
    made = [
        each.compiled(dict, partial(kind, each, 10**each.rank))
        for each, kind in zip(ranks, kinds, strict=True)
    ]
    return ranks, made


def test_a_step_of_one_rank_is_a_step_of_all():
    _, made = compiled(Executable, Executable, Executable)
    for each in made:
        each.arrays["tokens"][:] = 5
        each.run(1, 1)
        assert each.arrays["next"][0, 0] == 111
        assert each.arrays["tokens"].tolist() == [5, 5]


def test_the_number_of_the_first_rank_counts():
    first, second = compiled(Executable, Executable)[0]
    assert first.least(7) == 7
    assert second.least(3) == 7


def test_a_rank_that_is_too_far_behind_is_an_error():
    ranks, _ = compiled(Executable, Executable)
    for _ in range(4096):
        ranks[0].least(1)
    with pytest.raises(RankError, match="rank 1 is 4096 calls behind: call its kernel as often"):
        ranks[0].least(1)
    assert ranks[1].least(2) == 1


def test_what_a_rank_raises_ends_all():
    _, (first, second) = compiled(Executable, Failing)
    with pytest.raises(RankError, match="rank 1 has failed in this step: no room"):
        first.run(1, 1)
    with pytest.raises(MemoryError, match="no room"):
        second.run(1, 1)
    with pytest.raises(RankError, match="have stopped in the middle of a step"):
        first.run(1, 1)


def test_what_all_raise_ends_none():
    ranks, (first, second) = compiled(Failing, Failing)
    for each in (first, second, second, first):
        with pytest.raises(MemoryError, match="no room"):
            each.run(1, 1)
    assert not any(each.results for each in ranks)


def test_a_rank_that_does_not_come_is_waited_for_until_the_deadline(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0.3")
    (ranks, _), (first, _) = compiled(Executable, Absent)
    with pytest.raises(RankError, match=r"rank 1 did not come to the same step within 0\.3 s"):
        first.run(1, 1)
    with pytest.raises(RankError, match="rank 1 did not come"):
        ranks.while_waiting(1.0, (1,))


def test_a_window_is_the_same_memory_on_all_ranks():
    first, second = compiled(Executable, Executable)[0]
    windows = [first.window(100), second.window(100), first.window(30)]
    assert [len(each) for each in windows] == [100, 100, 30]
    assert all(each.ctypes.data % 64 == 0 and not each.any() for each in windows)
    assert np.shares_memory(windows[0], windows[1])
    with pytest.raises(RankError, match="one rank shares 30 bytes, and another one 31"):
        second.window(31)


def test_each_rank_says_what_it_reads(kernels):
    first, second = kernels(2)
    assert (first.mpi_rank, second.mpi_rank, second.world_size) == (0, 1, 2)
    shares = [each.explain().shares for each in (first, second)]
    assert [each.rank for each in shares] == [0, 1]
    assert shares[0].weights == shares[1].weights
    with pytest.raises(ValueError, match=r"export\(\) writes the model of a file"):
        first.export("nowhere")
