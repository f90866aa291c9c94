"""How ranks divide heads, columns and logits: all of them, once, and as evenly as can be."""

import math
from itertools import chain

import numpy as np
import pytest

from tensor_ops_decode.sharding.rank_ranges import GatedColumns, Heads, Logits

MOST_RANKS = 16
BLOCKS = (1, 32, 256)


def random_heads(seed):
    """Return heads whose columns are whole blocks, as those of a stored matrix are."""
    draw = np.random.default_rng(seed)
    while True:
        groups, per_group = draw.integers(1, 13), draw.integers(1, 7)
        size = draw.choice([16, 20, 32, 48, 64, 80, 96, 128, 256])
        heads = Heads(*map(int, (groups * per_group, groups, size)), int(draw.choice(BLOCKS)))
        if heads.num_heads * heads.head_size % heads.block == 0:
            return heads


def least_of_the_largest(heads, most_ranks):
    """Return for each number of ranks how many heads one has at least; infinite if it cannot be.

    All ways to divide them are tried.
    """
    per_group = heads.num_heads // heads.num_kv_heads

    def can_be(start, stop):
        is_whole = start % per_group == stop % per_group == 0
        is_in_one_group = start // per_group == (stop - 1) // per_group
        is_cut_well = stop * heads.head_size % heads.block == 0
        return is_cut_well and (is_whole or is_in_one_group)

    found = [0] + [math.inf] * heads.num_heads  # of the first heads, of 0 ranks
    largest = []
    for _ in range(most_ranks):
        found = [
            min(
                (
                    max(found[start], stop - start)
                    for start in range(stop)
                    if found[start] < math.inf and can_be(start, stop)
                ),
                default=math.inf,
            )
            for stop in range(heads.num_heads + 1)
        ]
        largest.append(found[-1])
    return largest


@pytest.mark.parametrize("seed", range(60))
def test_heads_are_divided_as_evenly_as_groups_and_blocks_allow(seed):
    heads = random_heads(seed)
    least = least_of_the_largest(heads, heads.num_heads)
    assert heads.most == max(count for count, size in enumerate(least, 1) if size < math.inf)
    for world_size in range(1, min(heads.most, MOST_RANKS) + 1):
        shares = [heads.heads(rank, world_size) for rank in range(world_size)]
        assert list(chain(*shares)) == list(range(heads.num_heads))
        assert max(map(len, shares)) == least[world_size - 1]
        assert min(map(len, shares)) > 0


@pytest.mark.parametrize("seed", range(60))
def test_a_rank_has_the_keys_and_values_of_its_heads(seed):
    heads = random_heads(seed)
    per_group = heads.num_heads // heads.num_kv_heads
    for world_size in range(1, min(heads.most, MOST_RANKS) + 1):
        of_ranks = [heads.kv_heads(rank, world_size) for rank in range(world_size)]
        assert set(chain(*of_ranks)) == set(range(heads.num_kv_heads))
        for rank, kv_heads in enumerate(of_ranks):
            share = heads.heads(rank, world_size)
            groups = sorted({head // per_group for head in share})
            assert groups == list(kv_heads)
            assert len(share) % len(groups) == 0
            assert len(groups) == 1 or len(share) == len(groups) * per_group


def test_rows_are_of_queries_then_keys_then_values():
    heads = Heads(9, 3, 64)
    assert heads.rows(1, 2) == (range(384, 576), range(704, 768), range(896, 960))
    assert heads.columns(1, 2) == range(384, 576)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("blocks", [1, 2, 7, 43, 112])
def test_columns_are_divided_in_whole_blocks(block, blocks):
    columns = GatedColumns(blocks * block, block)
    assert columns.most == blocks
    for world_size in range(1, min(blocks, MOST_RANKS) + 1):
        shares = [columns.columns(rank, world_size) for rank in range(world_size)]
        assert list(chain(*shares)) == list(range(columns.count))
        assert {len(each) % block for each in shares} == {0}
        assert max(map(len, shares)) - min(map(len, shares)) in (0, block)


def test_rows_are_of_gate_then_up():
    assert GatedColumns(160, 32).rows(1, 2) == (range(64, 160), range(224, 320))


@pytest.mark.parametrize("count", [3, 17, 49152])
def test_logits_are_those_that_allgather_expects(count):
    logits = Logits(count)
    assert logits.most == count
    for world_size in range(1, min(count, MOST_RANKS) + 1):
        for rank in range(world_size):
            first, end = (count * each // world_size for each in (rank, rank + 1))
            assert logits.rows(rank, world_size) == (range(first, end),)
