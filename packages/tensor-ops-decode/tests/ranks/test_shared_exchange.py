"""Vectors that ranks exchange in memory; each rank is a thread here."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.shared_exchange import SharedExchange


def while_waiting(seconds, ranks):
    assert seconds < 20, ranks


def on_ranks(world_size, function):
    """Return what a function returns or raises for the exchange of each rank."""
    memory = np.zeros(SharedExchange.num_bytes(world_size), np.uint8)

    def run(rank):
        try:
            return function(rank, SharedExchange(memory, rank, world_size, while_waiting))
        except RankError as error:
            return error

    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(run, range(world_size)))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("length", [1, 576, 200_000])  # the last of several parts
def test_every_rank_gets_what_each_has_sent(world_size, length):
    random = np.random.default_rng(length)
    sent = random.standard_normal((5, world_size, length), np.float32)

    def run(rank, exchange):
        received = np.empty_like(sent)
        for vectors, row in zip(sent, received, strict=True):
            exchange.exchange(vectors[rank], row)
        return received

    for received in on_ranks(world_size, run):
        np.testing.assert_array_equal(received, sent)


def test_vectors_of_other_lengths_are_an_error():
    def run(rank, exchange):
        exchange.exchange(np.zeros(4 + rank), np.zeros((2, 4 + rank)))

    first, second = on_ranks(2, run)
    assert str(first).startswith("rank 1 gives 40 bytes where rank 0 gives 32")
    assert str(second).startswith("rank 0 gives 32 bytes where rank 1 gives 40")


def test_a_rank_that_leaves_is_named():
    def run(rank, exchange):
        if rank:
            exchange.leave()
            return
        while True:
            exchange.check([0, 1])
            time.sleep(0.01)

    error, _ = on_ranks(2, run)
    assert str(error) == "rank 1 has ended, while others go on"
    assert error.rank == 1
