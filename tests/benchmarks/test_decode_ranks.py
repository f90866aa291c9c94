"""The benchmark of ranks: its model of what steps cost, its jobs, and its tables."""

import dataclasses
import json
import statistics
from pathlib import Path

import pytest

import decode_ranks
from rank_runs import tables
from rank_runs.cost import Link, RankStep, cost_of, step_of
from rank_runs.jobs import Job
from rank_runs.shapes import SIZES, program_of_size
from tensor_ops_decode import shard

RECORD = Path(decode_ranks.__file__).with_name("results") / "decode_ranks.json"
LINK = Link(latency=1e-5, bandwidth=1e9)


def record(ranks_take, **changed):
    """Return a record of one model, whose ranks have exchanged ten vectors in a step."""
    one = RankStep(1, 4_000_000)
    ranks = RankStep(2, 2_000_000, 10, 8000, 1, 40_000)
    return {
        "device": "a processor",
        "commit": "0123456",
        "launcher": "mpiexec",
        "how": {"ranks": 2, "rounds": 3, "steps": 64, "prompt": 32},
        "allreduces": {
            "16": {"first": 9e-6, "median": 1e-5, "third": 1.1e-5},
            "250016": {"first": 1e-3, "median": 1.01e-3, "third": 1.1e-3},
        },
        "models": {
            "a model": {
                "seconds": {"one": [1e-3, 1e-3, 1e-3], "ranks": ranks_take},
                "steps": {"one": dataclasses.asdict(one), "ranks": dataclasses.asdict(ranks)},
            }
        },
    } | changed


def test_a_step_is_reading_and_exchanges():
    step = RankStep(3, 5_000_000, allreduces=4, allreduce_bytes=1000, gathers=1, gather_bytes=2000)
    cost = cost_of(step, 1e9, LINK)
    assert cost.reading == pytest.approx(5e-3)
    assert cost.allreduces == pytest.approx(4 * (1e-5 + 2 * 1000 / 1e9))
    assert cost.gathers == pytest.approx(1e-5 + 2 * 2000 / 1e9)
    assert cost.total == pytest.approx(sum(dataclasses.astuple(cost)))


def test_one_rank_exchanges_nothing():
    program = program_of_size("8B")
    step = step_of([program], 100)
    assert (step.world_size, step.allreduces, step.gathers) == (1, 0, 0)
    assert cost_of(step, 1e9, LINK).total == step.bytes_read / 1e9


@pytest.mark.parametrize("name", SIZES)
def test_large_models_are_divided_evenly(name):
    program = program_of_size(name)
    hidden, layers, *_, words = SIZES[name]
    one = step_of([program], 1000)
    weights = {"8B": 4.4e9, "70B": 39.5e9}[name]
    assert weights < one.bytes_read < 1.05 * weights
    step = step_of([shard(program, rank, 8) for rank in range(8)], 1000)
    assert 1 / 8 < step.bytes_read / one.bytes_read < 1.02 / 8
    assert (step.allreduces, step.allreduce_bytes) == (2 * layers, 4 * hidden)
    assert (step.gathers, step.gather_bytes) == (1, 4 * words // 8)


def test_what_the_slower_rank_reads_counts_from_exchange_to_exchange():
    program = program_of_size("8B")
    first, second = (shard(program, rank, 2) for rank in range(2))
    tensors = dict(second.tensors)
    name = "blk.0.attn_q.weight[2048:4096]"
    tensors[name] = dataclasses.replace(tensors[name], type="f32")
    slower = dataclasses.replace(second, tensors=tensors)
    more = tensors[name].num_bytes - second.tensors[name].num_bytes
    even = step_of([first, second], 10).bytes_read
    assert step_of([first, slower], 10).bytes_read == even + more
    assert step_of([slower, first], 10).bytes_read == even + more


def test_the_link_is_that_of_the_shortest_and_of_the_longest_vectors():
    link = tables.link_of(record([1e-3] * 3))
    assert link.latency == pytest.approx(1e-5)
    assert link.bandwidth == pytest.approx(1e9)


def test_ranks_are_predicted_from_one_process():
    found = record([1e-3, 1.1e-3, 1.2e-3])
    # One process reads 4 GB/s, of which either rank has half.
    reading, allreduces, gather = 1e-3, 10 * (1e-5 + 8e-6), 1e-5 + 4e-5
    cost = tables.predicted(found, found["models"]["a model"])
    assert cost.total == pytest.approx(reading + allreduces + gather)
    made = decode_ranks.blocks(found)
    assert "| a model | 1,000 | 909 | 0.91 | 0.83 to 1.00 | 813 | +12% |" in made["ranks-speed"]
    assert "| 16 | 10.0 | 9.0 to 11.0 |" in made["ranks-exchanges"]
    assert "| 70B | 8 ranks of one machine |" in made["ranks-predictions"]
    assert made["ranks-setting"].startswith("a processor; commit 0123456; mpiexec; 3 rounds")


def test_a_page_without_a_record_says_so():
    made = decode_ranks.blocks(None)
    assert made.keys() == decode_ranks.blocks(record([1e-3] * 3)).keys()
    assert set(made.values()) == {"Not measured at this commit."}


@pytest.mark.skipif(not RECORD.exists(), reason="ranks have not been measured")
def test_what_was_measured_is_near_the_model_and_fast_enough():
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    assert 0 < found["allreduces"]["2048"]["median"] < 10e-6
    for name, model in found["models"].items():
        measured = statistics.median(model["seconds"]["ranks"])
        assert tables.predicted(found, model).total == pytest.approx(measured, rel=0.25), name
    one, ranks = (found["models"]["1B Q4_0"]["seconds"][each] for each in ("one", "ranks"))
    ratios = [a / b for a, b in zip(one, ranks, strict=True)]
    assert statistics.median(ratios) >= 0.9


def test_jobs_take_turns_and_are_measured():
    """Without an MPI: the ranks are one process."""
    found = decode_ranks.measure(
        {"stand-in": "stand-in"}, (), 2, ranks=1, backend="python", steps=3, exchanges=3
    )
    times = found["models"]["stand-in"]["seconds"]
    assert [len(each) for each in times.values()] == [2, 2]
    assert min(times["one"] + times["ranks"]) > 0
    assert found["allreduces"]["2048"]["first"] <= found["allreduces"]["2048"]["third"]
    assert found["models"]["stand-in"]["steps"]["one"]["bytes_read"] > 0


def test_a_job_that_ends_says_why():
    with (
        pytest.raises(RuntimeError, match=r"a job has ended with 1: .*no such backend|nothing"),
        Job((), 1, 1, ["stand-in"], "nothing"),
    ):
        pass
