"""The model of how decoding scales to many cores."""

import json
from pathlib import Path

import pytest

import decode_scaling
from decode_scaling import seconds_of_step

RECORD = Path(decode_scaling.__file__).with_name("results") / "decode_scaling.json"
MODEL = {
    "nodes": [{"bytes": 8000, "tiles": 8}, {"bytes": 0, "tiles": 0}],
    "core_bandwidth": 2e9,
    "memory_bandwidth": 3e9,
    "fraction_of_it": 0.5,
}


def test_one_worker_takes_what_its_bandwidth_says():
    assert seconds_of_step(MODEL, 1.0, 1) == pytest.approx(8e-6)


def test_workers_share_whole_tiles_and_then_meet():
    assert seconds_of_step(MODEL, 0.0, 2) == pytest.approx(4e-6)
    assert seconds_of_step(MODEL, 0.0, 5) == pytest.approx(2e-6)  # one of them has two tiles
    assert seconds_of_step(MODEL, 0.0, 64) == pytest.approx(1e-6)
    # Both nodes end with a meeting.
    assert seconds_of_step(MODEL, 1e-7, 4) == pytest.approx(2e-6 + 2 * 2e-7)


def test_no_number_of_workers_reads_faster_than_the_memory():
    assert seconds_of_step(MODEL, 0.0, 8, 4e9) == pytest.approx(4e-6)


def test_the_model_is_near_what_was_measured():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for model in record["models"].values():
        for workers, seconds in model["seconds"].items():
            memory = model["memory_bandwidth"]
            found = seconds_of_step(model, record["seconds_to_meet"], int(workers), memory)
            assert found == pytest.approx(seconds, rel=0.35)
