"""The bytes that each of several ranks reads, as `PersistentKernel.explain` states them."""

import json

import pytest

from tensor_ops_decode import Builder, Cache, Limits, PersistentKernel, Tensor, shard
from tensor_ops_decode.sharding.rank_shares import RankShares


@pytest.fixture
def program():
    """Attention with three groups of heads, between two products of bfloat16."""
    builder = Builder(Limits(1, 1, 1, 16, 16, 1))
    for name, rows, columns in (("table", 10, 16), ("qkv", 48, 16), ("o", 16, 24)):
        builder.tensor(name, Tensor("bf16", (rows, columns), {"attached": True}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": "table"}, output="x")
    qkv = builder.add("linear", {"x": x}, {"weight": "qkv"}, output="qkv")
    sizes = {"num_heads": 6, "num_kv_heads": 3, "head_size": 4}
    sizes["cache"] = builder.cache("cache", Cache(3, 4, "float16", paged=True))
    how = {"scale": 0.25, "window": 0, "soft_cap": 0.0, "rotation": "halves", "eps": 1e-6}
    heads = builder.add("attention", {"qkv": qkv}, None, sizes | how, output="heads")
    product = builder.add("linear", {"x": heads}, {"weight": "o"}, output="product")
    y = builder.add("add", {"a": product, "b": x}, output="y")
    builder.add("linear", {"x": y}, {"weight": "table"}, output="logits")
    return builder.program(["logits"])


def test_shares_are_the_bytes_of_the_matrices_and_caches_of_each_rank(program):
    shares = RankShares.of(program, 1, 2)
    assert (shares.rank, shares.world_size) == (1, 2)
    embedding, logits = 2 * 16, 2 * 5 * 16
    whole = 2 * (48 * 16 + 16 * 24)
    assert shares.whole == embedding + 2 * logits + whole
    assert shares.weights == (
        embedding + logits + whole * 2 // 3,
        embedding + logits + whole // 3,
    )
    assert shares.cache_per_token == (2 * 2 * 4 * 2, 2 * 4 * 2)
    of_caches = [shard(program, rank, 2).caches["cache"].bytes_per_token for rank in range(2)]
    assert shares.cache_per_token == tuple(of_caches)


def test_shares_are_plain_values_and_words(program):
    shares = RankShares.of(program, 1, 3)
    assert json.loads(json.dumps(shares.as_dict()))["weights"] == list(shares.weights)
    shares = RankShares(1, 96 * 2**20, (50 * 2**20, 47 * 2**20), (3072, 1536))
    assert str(shares) == (
        "rank 1 of 2: a step reads 50.0, 47.0 MiB of weights on the ranks, 96.0 MiB on one alone; "
        "the caches take 3.0, 1.5 KiB for each token"
    )


def test_a_kernel_explains_what_each_rank_has():
    kernels = [
        PersistentKernel(backend="python", world_size=2, mpi_rank=rank, communicator="local")
        for rank in range(2)
    ]
    for kernel in kernels:
        kernel.compile()
    for rank, kernel in enumerate(kernels):
        found = kernel.explain()
        assert found.shares.rank == rank
        assert 0.5 < found.shares.weights[rank] / found.shares.whole < 0.6
        assert f"rank {rank} of 2: a step reads " in str(found)
        kernel.close()


def test_a_kernel_of_one_rank_explains_no_shares():
    with PersistentKernel(backend="python") as kernel:
        kernel.compile()
        assert kernel.explain().shares is None
        assert kernel.explain().as_dict()["shares"] is None
