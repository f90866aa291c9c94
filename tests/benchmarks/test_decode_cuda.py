"""Predictions of decode steps on GPUs follow from what was counted."""

import dataclasses
import json

import pytest

import decode_cuda_page
import records
from decode_cuda import model, tables
from decode_cuda.gpus import GPUS
from decode_cuda.kernel import ARCHITECTURES, FORMATS, as_record, from_record

A100, H100, H200, B200, RTX4090 = GPUS
ONE, EIGHT, SEVENTY = model.SHAPES


@pytest.fixture(scope="module")
def kernels():
    record = records.read(decode_cuda_page.RECORD, decode_cuda_page.FORMAT)
    return [from_record(each) for each in record["kernels"]]


def cases(kernels):
    for gpu in GPUS:
        for shape in model.SHAPES:
            for name in FORMATS:
                yield gpu, shape, tables.kernel_of(gpu, kernels), name


def test_the_record_has_every_kernel(kernels):
    found = [(each.architecture, each.slots) for each in kernels]
    assert found == [(number, slots) for number in ARCHITECTURES for slots in (3, 4)]


def test_a_kernel_is_the_same_after_it_was_written(kernels):
    for kernel in kernels:
        assert from_record(json.loads(json.dumps(as_record(kernel)))) == kernel


def test_slots_are_those_that_there_is_room_for(kernels):
    assert [tables.kernel_of(gpu, kernels).slots for gpu in GPUS] == [4, 4, 4, 4, 3]


def test_bytes_are_those_of_all_matrices(kernels):
    """Hidden size 2048: three panels' worth of columns at most, all of them whole steps."""
    step = tables.kernel_of(H100, kernels).steps["Q4_0"]
    weights = 16 * 2048 * (3072 + 2048 + 2 * 8192 + 8192) + 128256 * 2048
    assert model.weight_bytes(ONE, step) == weights * 4.5 / 8


def test_a_model_that_does_not_fit_has_no_time(kernels):
    def held(shape, name):
        return [
            gpu.name
            for gpu in GPUS
            if model.fits(gpu, shape, tables.kernel_of(gpu, kernels).steps[name])
        ]

    assert held(SEVENTY, "BF16") == ["B200"]
    assert held(SEVENTY, "Q4_0") == ["A100-80", "H100-SXM", "H200", "B200"]
    assert held(EIGHT, "BF16") == [gpu.name for gpu in GPUS]
    assert "does not fit" in tables.blocks(record_of(kernels))["steps"]


def test_a_step_takes_what_cannot_go_on_at_once(kernels):
    for gpu, shape, kernel, name in cases(kernels):
        found = model.predict(gpu, shape, kernel, name, 512)
        others = found.multiply + found.pauses + found.attention
        least, most = max(found.stream, others), found.stream + others
        assert least * 0.999 <= found.seconds <= most
        assert 0 < found.share <= 1


def test_rings_hide_pauses(kernels):
    """Without any a step would be reading and pauses; with endless ones the longer of both."""
    kernel = tables.kernel_of(A100, kernels)
    few = dataclasses.replace(kernel, slots=2)
    many = dataclasses.replace(kernel, slots=1000)
    slow, usual, fast = (
        model.predict(A100, EIGHT, each, "BF16", 512) for each in (few, kernel, many)
    )
    assert slow.seconds > usual.seconds > fast.seconds
    assert fast.seconds == pytest.approx(fast.stream, rel=0.01)


def test_what_was_found_takes_the_place_of_assumptions(kernels):
    """The bandwidth of a copy and the clock do, either alone too."""
    kernel = tables.kernel_of(H200, kernels)
    assert H200.attainable == pytest.approx(0.9 * 4.8e12)
    assert H200.as_found() == H200
    assert H200.as_found(copied=4e12).attainable == 4e12
    assert H200.as_found(clock=1.5e9).clock == 1.5e9
    usual, slower = (
        model.predict(gpu, EIGHT, kernel, "Q4_0", 512) for gpu in (H200, H200.as_found(4e12, 1.5e9))
    )
    assert slower.stream == pytest.approx(usual.bytes / 4e12)
    assert slower.multiply > usual.multiply


def test_more_positions_and_requests_take_longer(kernels):
    for gpu, shape, kernel, name in cases(kernels):
        one = model.predict(gpu, shape, kernel, name, 512).seconds
        assert model.predict(gpu, shape, kernel, name, 4096).seconds > one
        assert one < model.predict(gpu, shape, kernel, name, 512, 8).seconds < 8 * one


def test_the_kinds_of_instructions_are_all_of_a_step(kernels):
    table = tables.blocks(record_of(kernels))["kinds"].splitlines()
    rows = {name: list(map(int, cells)) for name, *cells in map(cells_of, table[2:])}
    whole = rows["all of a step"]
    kinds = [rows[name] for name in (*tables.KINDS, tables.OTHER)]
    assert [sum(column) for column in zip(*kinds, strict=True)] == whole
    assert rows["tensor cores"] == [16, 8, 16]


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def record_of(kernels):
    return {
        "date": "2026-01-01T00:00:00",
        "compiler": "V0",
        "commit": {"id": "0" * 40},
        "kernels": [as_record(each) for each in kernels],
    }
