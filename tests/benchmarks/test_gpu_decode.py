"""Decode steps are timed on a GPU as they are here on an executor in NumPy, with small models."""

import json

import pytest

from decode_cuda.model import Shape
from gpu import decode, decode_report, llama, parts, report, timing
from gpu.goals import OURS, findings
from tensor_ops_decode import reference

TINY = Shape("tiny", 2, 128, 4, 2, 32, 256, 300, has_own_head=False)
CASES, STEPS = ((1, 70), (2, 9)), 2


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.setattr(decode, "ROUNDS", 2)
    return list(decode.figures(reference, TINY, CASES, STEPS))


def test_each_type_of_weights_is_timed_in_each_case(figures):
    cases = [(each["variant"], tuple(each["shape"])) for each in figures]
    assert cases == [(kind, case) for kind in llama.KINDS for case in CASES]
    assert all(len(each["us"][OURS]) == 2 and min(each["us"][OURS]) > 0 for each in figures)


def test_random_weights_give_numbers():
    for kind in llama.KINDS:
        program, tensors = llama.program_of(TINY, kind, 1, 8)
        executable = reference.compile_program(program, tensors)
        decode.seconds_of_steps(executable, 1, 4, 1)
        assert executable.first_nan(1, 1, 0) is None
        assert 0.01 < abs(executable.arrays["logits"][0]).max() < 100


def test_a_failure_is_a_figure_too(monkeypatch, capsys):
    monkeypatch.setattr(reference, "compile_program", None)
    found = list(decode.figures(reference, TINY, CASES, STEPS))
    assert [sorted(each["failures"]) for each in found] == [["all"]] * len(llama.KINDS)
    assert "failed: BF16: TypeError" in capsys.readouterr().out
    assert findings(found) == []


def test_a_model_of_another_engine_is_timed_in_the_same_case(monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setattr(decode, "ROUNDS", 2)
    monkeypatch.setattr(parts, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(decode.shutil, "which", lambda name: None)
    monkeypatch.setattr(decode, "copied_bytes_per_second", lambda: 1e9)
    *_, last = decode.figures(reference, TINY, CASES, STEPS)
    assert (last["variant"], last["shape"], list(last["us"])) == (
        ("BF16", list(CASES[0]), [parts.TRANSFORMERS])
    )
    assert len(last["us"][parts.TRANSFORMERS]) == 2


def test_a_copy_is_read_and_written(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(parts, "DEVICE", "cpu")
    monkeypatch.setattr(decode, "COPIED", 1 << 10)
    monkeypatch.setattr(timing, "on_stream", lambda entries, ahead: {"copy": [1e-6, 2e-6, 4e-6]})
    assert decode.copied_bytes_per_second() == 2 * 1024 / 2e-6


def test_what_llama_bench_prints_is_read():
    printed = json.dumps([{"n_gen": 64, "samples_ns": [64_000_000, 128_000_000], "avg_ts": 1.0}])
    assert decode.llama_bench_seconds(printed) == [0.001, 0.002]


def test_steps_are_shown_beside_copy_prediction_and_others():
    case = {"way": parts.DECODE, "variant": "Q4_0", "dtype": "", "shape": [1, 512]}
    figures = [
        {**case, "copied": 2.8e12, "us": {OURS: [500, 400, 600]}},
        {**case, "us": {parts.LLAMA_CPP: [1000]}},
        {**case, "shape": [8, 512], "us": {OURS: [800]}},
        {**case, "shape": [0, 0], "failures": {"all": "no memory"}},
    ]
    one, eight = decode_report.rows(figures, "NVIDIA H100 80GB HBM3")
    assert one[:5] == ("Q4_0", "1", "512", "0.5 ms", "2000")
    assert 0.2 < float(one[5]) < 0.5
    assert float(one[6]) > 0.5
    assert one[7:] == ("1000 tokens/s", report.NOTHING)
    assert eight[4:6] == ("10000", report.NOTHING)
    assert decode_report.rows(figures, "a GPU that is none")[0][6] == report.NOTHING


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_gpus_are_known_by_their_names(name, found):
    gpu = decode_report.known_gpu(name)
    assert gpu is not None
    assert gpu.name == found
