"""Decode steps are timed on a GPU as they are here on an executor in NumPy, with small models."""

import dataclasses
import json
import sys
import types

import pytest

from decode_cuda.gpus import GPUS, gpu_named
from decode_cuda.model import Shape
from decode_cuda.step_cases import MODELS, Model
from gpu import decode, decode_report, engines, found, llama, parts, report, timing
from gpu.goals import OURS, findings
from tensor_ops_decode import reference

TINY = Shape("tiny", 2, 128, 4, 2, 32, 256, 300, has_own_head=False)
CASES, STEPS = ((1, 70), (2, 9)), 2
MODEL = Model(TINY, CASES, fewer_blocks=(0.5, 0.25))
# The output of nvidia-smi on a machine with two GPUs.
SHOWN = "NVIDIA H200, 1980\nNVIDIA H200, 345\n"


@pytest.fixture(scope="module", autouse=True)
def few():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ROUNDS", "CALLS", "PROFILES"):
            patch.setattr(decode, name, 2)
        yield


@pytest.fixture(scope="module")
def figures(few):
    return list(decode.figures(reference, MODEL, steps=STEPS))


def test_each_type_of_weights_is_timed_in_each_case(figures):
    cases = [(each["variant"], tuple(each["shape"])) for each in figures]
    assert cases == [(kind, case) for kind in llama.KINDS for case in CASES]
    assert all(len(each["us"][OURS]) == 2 and min(each["us"][OURS]) > 0 for each in figures)


def test_steps_of_one_request_are_taken_apart(figures):
    alone = [each for each in figures if each["shape"][0] == 1]
    assert len(alone) == len(llama.KINDS)
    for figure in alone:
        assert figure["single"] > 0
        assert set(figure["nodes"]) == {
            *("embedded", "qkv normed", "qkv", "attended", "o", "o sum", "selected"),
            *("gate_up normed", "gate_up", "hidden", "down", "down sum", "logits normed"),
            *("logits", "next"),
        }
    assert not any("nodes" in each for each in figures if each not in alone)


def test_steps_are_timed_with_fewer_blocks_too():
    """The first case alone, where the device says how many multiprocessors it has."""
    asked = []

    def compile_program(program, tensors, **given):
        asked.append(given)
        return reference.compile_program(program, tensors)

    devices = [types.SimpleNamespace(compute_units=132)]
    executor = types.SimpleNamespace(compile_program=compile_program, devices=lambda: devices)
    figures = list(decode.figures(executor, MODEL, ["Q4_0"], STEPS))
    assert asked == [{}, {"num_workers": 66}, {"num_workers": 33}]
    found = [(each["blocks"], tuple(each["shape"])) for each in figures]
    assert found == [(None, CASES[0]), (None, CASES[1]), (66, CASES[0]), (33, CASES[0])]


def test_what_was_predicted_stands_beside_the_times():
    """With the bandwidth of a copy and the clock as they were found, and for fewer blocks."""
    here = found.Found(4.3e12, "NVIDIA H200", 1.98e9)
    figures = decode.figures(reference, MODEL, ["Q4_0"], STEPS, lambda: here)
    for figure in figures:
        assert (figure["copied"], figure["clock"]) == (4.3e12, 1.98e9)
        assert set(figure["predicted"]) == {
            *("step", "reading", "multiplying", "pauses", "attention"),
        }
        assert figure["predicted"]["step"] >= figure["predicted"]["pauses"] > 0
    big = MODELS["1B"].shape
    times = {
        blocks: found.predicted(here, big, "Q4_0", (1, 512), blocks)["predicted"]
        for blocks in (None, 66)
    }
    assert times[None]["reading"] == times[66]["reading"]
    assert times[66]["multiplying"] > 1.8 * times[None]["multiplying"]
    slower = dataclasses.replace(here, copied=2.15e12, clock=0.99e9)
    halved = found.predicted(slower, big, "Q4_0", (1, 512), None)["predicted"]
    assert halved["reading"] == pytest.approx(2 * times[None]["reading"], rel=1e-3)
    assert halved["multiplying"] == pytest.approx(2 * times[None]["multiplying"], rel=1e-3)


def test_nothing_is_predicted_of_other_gpus(figures):
    assert all(each["bytes"] > 0 and "predicted" not in each for each in figures)


def test_what_nvidia_smi_shows_is_read(monkeypatch):
    def run(words, **options):
        return types.SimpleNamespace(stdout=shown)

    monkeypatch.setattr(found.subprocess, "run", run)
    monkeypatch.setattr(found.shutil, "which", lambda name: "nvidia-smi")
    shown = SHOWN
    assert found.found_here(4.3e12) == found.Found(4.3e12, "NVIDIA H200", 1.98e9)
    shown = "NVIDIA H200, [N/A]\n"
    assert found.found_here(None) == found.Found(None, "NVIDIA H200", None)
    shown = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    assert found.found_here(None).gpu is None
    monkeypatch.setattr(found.shutil, "which", lambda name: None)
    assert found.found_here(None) == found.Found()


@pytest.mark.parametrize("name", list(MODELS))
def test_every_case_is_predicted(name):
    here = found.Found(name="NVIDIA H200")
    for kind in llama.KINDS:
        for case in MODELS[name].cases:
            meant = found.predicted(here, MODELS[name].shape, kind, case, None)
            assert meant["bytes"] > 0
            assert meant["predicted"]["step"] > 0


def test_random_weights_give_numbers():
    for shape in (TINY, MODELS["null"].shape):
        for kind in llama.KINDS:
            program, tensors = llama.program_of(shape, kind, 1, 8)
            executable = reference.compile_program(program, tensors)
            decode.seconds_of_steps(executable, 1, 4, 1)
            assert executable.first_nan(1, 1, 0) is None
            assert 0.01 < abs(executable.arrays["logits"][0]).max() < 100


def test_a_failure_is_a_figure_too(monkeypatch, capsys):
    monkeypatch.setattr(reference, "compile_program", None)
    found = list(decode.figures(reference, MODEL, steps=STEPS))
    assert [sorted(each["failures"]) for each in found] == [["all"]] * len(llama.KINDS)
    assert "failed: BF16: TypeError" in capsys.readouterr().out
    assert findings(found) == []


@pytest.fixture
def program(monkeypatch, tmp_path):
    """A function from the words of the command line to its status and figures."""
    monkeypatch.setitem(sys.modules, "tensor_ops_cuda", reference)
    monkeypatch.setattr(decode, "copied_bytes_per_second", lambda: None)
    monkeypatch.setattr(decode, "STEPS", STEPS)
    monkeypatch.setitem(MODELS, "1B", Model(TINY, ((1, 5), (2, 3))))
    monkeypatch.setitem(MODELS, "null", Model(TINY, ((2, 4),)))
    others = [("another", "Q4_0", lambda: [1.0])]
    monkeypatch.setattr(decode, "engines", lambda *given: iter(others))

    def run(*words):
        path = tmp_path / "figures.jsonl"
        status = decode.main(["--out", str(path), *words])
        return status, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    return run


def test_other_engines_follow_the_usual_model(program):
    status, figures = program("--seconds", "600")
    assert status == 0
    assert [list(each["us"]) for each in figures] == [*[[OURS]] * 6, ["another"]]


def test_models_and_types_are_chosen(program):
    status, figures = program("--seconds", "600", "--shapes", "1B,null", "--kinds", "Q8_0")
    assert status == 0
    assert [each["shape"] for each in figures] == [[1, 5], [2, 3], [2, 4]]
    assert {each["variant"] for each in figures} == {"Q8_0"}
    assert all(OURS in each["us"] for each in figures)


def test_it_stops_when_its_time_is_up(program, capsys):
    status, figures = program("--seconds", "0")
    assert (status, len(figures)) == (2, 1)
    assert "its time was up" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--shapes", "2B"), ("--kinds", "BF16,F32")])
def test_unknown_names_are_refused(program, words, capsys):
    with pytest.raises(SystemExit):
        program("--seconds", "1", *words)
    assert "is none of" in capsys.readouterr().err


def test_a_model_of_another_engine_is_timed_in_the_same_case(monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setattr(parts, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    (figure,) = decode.of_other_engines(TINY, 70, STEPS, 1e9)
    assert (figure["variant"], figure["shape"], list(figure["us"])) == (
        ("BF16", [1, 70], [parts.TRANSFORMERS])
    )
    assert len(figure["us"][parts.TRANSFORMERS]) == 2


def test_a_copy_is_read_and_written(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(parts, "DEVICE", "cpu")
    monkeypatch.setattr(found, "COPIED", 1 << 10)
    monkeypatch.setattr(timing, "on_stream", lambda entries, ahead: {"copy": [1e-6, 2e-6, 4e-6]})
    assert found.copied_bytes_per_second() == 2 * 1024 / 2e-6


def test_what_llama_bench_prints_is_read():
    printed = json.dumps([{"n_gen": 64, "samples_ns": [64_000_000, 128_000_000], "avg_ts": 1.0}])
    assert engines.llama_bench_seconds(printed) == [0.001, 0.002]


def test_steps_are_shown_beside_copy_prediction_and_others():
    case = {"way": parts.DECODE, "variant": "Q4_0", "model": "1B", "dtype": "", "shape": [1, 512]}
    ours = {**case, "blocks": None, "bytes": 700_000_000, "copied": 2.8e12}
    figures = [
        {**ours, "us": {OURS: [500, 400, 600]}, "predicted": {"step": 400}},
        {**case, "us": {parts.LLAMA_CPP: [1000]}},
        {**ours, "shape": [8, 512], "copied": None, "us": {OURS: [800]}},
        {**ours, "blocks": 66, "us": {OURS: [800]}},
        {**case, "shape": [0, 0], "failures": {"all": "no memory"}},
    ]
    rows = [dict(zip(decode_report.HEAD, row, strict=True)) for row in decode_report.rows(figures)]
    one, eight, fewer = rows
    assert list(one.values())[:7] == ["1B", "Q4_0", "1", "512", "all", "0.5 ms", "2000"]
    assert (one["of the copy"], one["of the prediction"]) == ("0.50", "1.25")
    assert (one[parts.LLAMA_CPP], one[parts.TRANSFORMERS]) == ("1000 tokens/s", report.NOTHING)
    assert (eight["tokens/s"], eight[parts.LLAMA_CPP]) == ("10000", report.NOTHING)
    assert (eight["of the copy"], eight["of the prediction"]) == (report.NOTHING, report.NOTHING)
    assert (fewer["blocks"], fewer[parts.LLAMA_CPP]) == ("66", report.NOTHING)


def test_steps_are_held_against_the_goals():
    """Goals are for the usual case of models, with all blocks and where the bandwidth is known."""
    case = {"way": parts.DECODE, "variant": "BF16", "dtype": "", "model": "8B", "shape": [1, 512]}
    ours = {
        **case,
        "blocks": None,
        "bytes": 15e9,
        "bandwidth": 5e12,
        "us": {OURS: [3750, 3000, 4000]},
    }
    quick = {**ours, "variant": "Q4_0", "bytes": 4e9, "us": {OURS: [1000]}}
    others = [
        {**ours, "blocks": 66},
        {**ours, "shape": [8, 512]},
        {**ours, "model": "null"},
        {name: each for name, each in ours.items() if name != "bandwidth"},
        {**case, "us": {parts.LLAMA_CPP: [1000]}},
    ]
    slow, fast = findings([ours, *others, quick])
    assert (slow.what, slow.wanted, slow.found, slow.met) == ("8B BF16", 0.78, 0.8, True)
    assert (slow.low, slow.high) == (0.75, 1.0)
    assert (fast.what, fast.wanted, fast.found) == ("8B Q4_0", 0.7, 0.8)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_gpus_are_known_by_their_names(name, expected):
    gpu = gpu_named(name)
    assert gpu is not None
    assert gpu.name == expected
    assert len(GPUS) == 5


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 PCIe", "NVIDIA GH200 480GB", "NVIDIA GeForce RTX 4090 Laptop GPU", ""]
)
def test_gpus_of_similar_names_are_others(name):
    assert gpu_named(name) is None
