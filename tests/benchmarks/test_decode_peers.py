"""Sentences about records of the decode engine, and the files that it is measured on."""

from pathlib import Path
from xml.etree import ElementTree

import gguf
import numpy as np
import pytest

import decode_models
from decode_peers import driver, matrices, picture, record, tables
from decode_peers.bounds import BOUNDS
from decode_peers.cases import CASES, ENGINES, MODELS, Room
from decode_peers.engines import processor
from decode_peers.goals import CAUSES, goals
from decode_peers.kinds import KINDS, kind_of
from decode_peers.process import EngineProcess
from decode_peers.results import Results

SMALL = MODELS["SmolLM2 Q4_1"]
TRAFFIC = {"weights": 100_000_000, "position": 20_000, "products": 100_000_000}


@pytest.fixture
def measured():
    """Return a function from {(model, case): {engine: seconds of each round}} to results."""

    def make(times, what="seconds", kind="avx512"):
        made = record.Record(None, kind, {"rounds": 6})
        made.content["seconds"] = 60
        for (model, case), engines in times.items():
            made.add_model(MODELS[model], TRAFFIC)
            for engine, rounds in engines.items():
                for value in rounds:
                    made.add(MODELS[model], CASES[case], ENGINES[engine], what, value)
        return Results(made.content)

    return make


def test_ratios_are_of_runs_in_the_same_round(measured):
    ours, theirs = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [3.0, 6.0, 12.0, 24.0, 48.0, 96.0]
    results = measured({(SMALL.name, "decode"): {"cpp": ours, "llama.cpp": theirs}})
    found = results.times_as_fast(SMALL.name, "decode", "cpp", "llama.cpp")
    assert found == (3.0, 3.0, 3.0)


def test_few_rounds_have_no_interval(measured):
    results = measured({(SMALL.name, "decode"): {"cpp": [1.0] * 5, "llama.cpp": [2.0] * 5}})
    assert results.times_as_fast(SMALL.name, "decode", "cpp", "llama.cpp") == (2.0, None, None)


def test_a_step_reads_its_weights_and_the_caches_of_its_sequences(measured):
    results = measured({(SMALL.name, "batch 8"): {"cpp": [0.01], "read": [0.05]}})
    case = CASES["batch 8"]
    read = TRAFFIC["weights"] + 8 * (case.length + case.new / 2) * TRAFFIC["position"]
    assert results.bytes_of_step(SMALL.name, case) == read
    found = results.of_bandwidth(SMALL.name, "batch 8", "cpp")
    assert found.value == pytest.approx(read / 0.01 / (1e9 / 0.05))


def test_two_int8_terms_are_two_products(measured):
    times = {"cpp": [1.0], "cpp, int8": [0.5], "multiply": [0.01]}  # 51.2 billion in each prompt
    results = measured({(name, "prompt"): times for name in (SMALL.name, "1B BF16")})
    assert results.products(SMALL.name, "prompt") == pytest.approx(1e11)
    assert results.of_products(SMALL.name, "cpp").value == pytest.approx(2 * 0.512)
    assert results.of_products(SMALL.name, "cpp, int8").value == pytest.approx(2 * 0.512)
    assert results.of_products("1B BF16", "cpp").value == pytest.approx(0.512)
    assert "| cpp, int8 | 1,024 |  |  | 1.02 |" in tables.small(results)


def test_several_prompts_count_with_all_their_tokens(measured):
    times = {"cpp, int8": [0.5], "multiply": [0.01], "OpenVINO GenAI": [0.75]}
    results = measured({(SMALL.name, "prompts"): times})
    assert results.rate(SMALL.name, "prompts", "cpp, int8") == 1024
    assert results.of_products(SMALL.name, "cpp, int8", "prompts").value == pytest.approx(1.024)
    text = tables.small(results)
    assert "| cpp, int8 | 1,024 |  |  | 1.02 |" in text
    assert "sixteenth" not in text  # without the single prompt there is nothing to compare
    single = {"cpp, int8": [0.5], "OpenVINO GenAI": [0.55]}
    both = measured({(SMALL.name, "prompts"): times, (SMALL.name, "prompt"): single})
    said = "reads them 1.50 times as fast as OpenVINO GenAI, and the one 1.10 times."
    assert said in tables.small(both)


@pytest.mark.parametrize(
    ("model", "dtype"), [("1B-F32", "float32"), ("1B-BF16", "bfloat16"), ("1B-Q6_K", "int8")]
)
def test_the_processor_multiplies_in_the_type_of_the_model(model, dtype):
    opened = processor.open(Path(f"{model}.gguf"), {"threads": 1}, Room(1, 1))
    assert opened.dtype == dtype
    assert opened.prompt(512) > 0
    assert opened.prompts(16, 32) > 0


def test_attention_is_what_a_long_context_adds_to_a_step(measured):
    results = measured(
        {
            (SMALL.name, "decode"): {"cpp": [0.002]},
            (SMALL.name, "context 4000"): {"cpp": [0.004], "read": [0.02]},
        }
    )
    long, short = (
        results.bytes_of_step(SMALL.name, CASES[name]) for name in ("context 4000", "decode")
    )
    found = results.attention_of_bandwidth(SMALL.name, "context 4000", "cpp")
    assert found.value == pytest.approx((long - short) / 0.002 / (1e9 / 0.02))


def test_a_step_is_compared_with_the_one_measured_right_before_it(measured):
    results = measured(
        {(SMALL.name, "decode"): {"cpp": [0.001]}, (SMALL.name, "batch 8"): {"cpp": [0.004]}}
    )
    assert results.steps_of_one(SMALL.name, "batch 8", "cpp").value == pytest.approx(4)
    results.content["cells"][f"{SMALL.name}, batch 8"]["cpp"]["decode"] = [0.002]
    assert results.steps_of_one(SMALL.name, "batch 8", "cpp").value == pytest.approx(2)


class Answering:
    """A process whose steps take a millisecond for each sequence."""

    def __init__(self, engine, asked):
        self.engine, self.asked = engine, asked

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def ask(self, question, **given):
        self.asked.append((self.engine.name, question, given.get("sequences")))
        if question == "load":
            return {"versions": {}}
        return {"seconds": given["sequences"] / 1000}


def test_our_engine_decodes_one_sequence_right_before_eight(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(driver, "EngineProcess", lambda engine, _: Answering(engine, asked))
    monkeypatch.setattr(driver.models, "file_of", lambda *_: Path(__file__))
    monkeypatch.setattr(driver.models, "traffic", lambda _: TRAFFIC)
    monkeypatch.setattr(driver.models, "export_of", lambda *_: Path(__file__))
    made = record.Record(None, "avx512", {"rounds": 2})
    driver.measure(SMALL, ("batch 8",), 2, made, driver.Places(tmp_path, {}))
    cell = made.content["cells"][f"{SMALL.name}, batch 8"]
    assert cell["cpp"] == {"decode": [0.001] * 2, "seconds": [0.008] * 2}
    assert cell["llama.cpp"] == {"seconds": [0.008] * 2}
    ours = [count for name, what, count in asked if (name, what) == ("cpp", "decode")]
    assert ours == [1, 8] * 3  # once more to warm up


def test_a_goal_is_met_missed_or_not_measured(measured):
    results = measured({(SMALL.name, "prompt"): {"cpp": [1.0], "llama.cpp": [4.0]}})
    found = {goal.name: goal.is_met for goal in goals(results)}
    assert found[f"{SMALL.name}: prompt with two int8 terms, beside llama.cpp"] is True
    assert found[f"{SMALL.name}: prompt with one int8 term, beside llama.cpp"] is None
    slower = measured({(SMALL.name, "prompt"): {"cpp": [1.0], "llama.cpp": [3.0]}})
    found = {goal.name: goal.is_met for goal in goals(slower)}
    assert found[f"{SMALL.name}: prompt with two int8 terms, beside llama.cpp"] is False
    assert "**missed**" in tables.goal_table(slower)


def test_causes_are_of_goals_that_exist(measured):
    names = {goal.name for kind in KINDS for goal in goals(measured({}, kind=kind))}
    assert CAUSES.keys() <= names | {name.partition(": ")[2] for name in names}


def test_each_kind_of_processor_has_bounds_and_a_section_of_its_own(measured):
    assert BOUNDS.keys() == KINDS.keys()
    rounds = {"cpp": [1.0], "llama.cpp": [1.9], "ik_llama.cpp": [1.6]}
    name = f"{SMALL.name}: decode, beside the better of llama.cpp and ik_llama.cpp"
    for kind, is_met in (("avx512", True), ("avx2", False)):
        results = measured({(SMALL.name, "decode"): rounds}, kind=kind)
        (goal,) = (each for each in goals(results) if each.name == name)
        assert (goal.figure.value, goal.is_met) == (1.6, is_met)
        said = tables.section(results)
        assert f"### Goals on {KINDS[kind].title}\n" in said
    assert f"{name.partition(': ')[2]}, {SMALL.name} 1.60: " in said
    assert "no goals" in tables.goal_table(measured({}, kind="x86-64-v2"))


def test_the_kind_of_a_processor_is_that_of_its_highest_level():
    levels = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    assert [kind_of(levels[:count]) for count in (1, 2, 3)] == ["x86-64-v2", "avx2", "avx512"]
    assert kind_of(levels, has_tiles=True) == "amx"


def test_the_best_of_others_is_that_of_the_lower_median(measured):
    def beside(**failures):
        results = measured({(SMALL.name, "decode"): rounds})
        results.content["failures"] = {f"{SMALL.name}, decode": failures}
        return results.times_as_fast_as_best(
            SMALL.name, "decode", "cpp", ("llama.cpp", "ik_llama.cpp")
        )

    rounds = {"cpp": [1.0, 1.0, 1.0], "llama.cpp": [2.0, 3.0, 9.0], "ik_llama.cpp": [4.0] * 3}
    assert beside() == (3.0, None, None)
    del rounds["ik_llama.cpp"]
    assert beside() is None
    assert beside(**{"ik_llama.cpp": "no such format"}) == (3.0, None, None)


def test_settings_of_engines_are_named(measured):
    results = measured({(SMALL.name, "decode"): {"cpp": [1.0]}})
    assert "Settings" not in tables.setting(results)
    results.content["engines"] = {"cpp": {}, "ik_llama.cpp": {"repack_tensors": True}}
    assert "Settings: ik_llama.cpp (repack_tensors True)." in tables.setting(results)


def test_a_kind_without_a_record_is_said_to_be_not_measured(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(decode_models, "RECORDS", tmp_path)
    assert "not measured at this commit" in decode_models.section("avx2")
    made = record.Record(tmp_path / "decode_models_avx2.json", "avx512", {})
    made.write()
    with pytest.raises(ValueError, match="is of a processor of the kind avx512"):
        decode_models.section("avx2")


def test_memory_counts_what_comes_on_top_of_weights_and_cache(measured):
    needed = TRAFFIC["weights"] + 1024 * TRAFFIC["position"]
    results = measured({(SMALL.name, "start"): {"cpp": [needed + 5e6]}}, what="resident")
    assert results.memory_besides(SMALL.name, "cpp").value == pytest.approx(5, rel=0.01)


def test_what_did_not_run_is_said_without_folders(measured):
    results = measured({(SMALL.name, "decode"): {"cpp": [1.0]}})
    noted = record.Record(None, "avx512", {})
    noted.add_missing(SMALL, ENGINES["llama.cpp"], "no /some/folder/of/mine/llama.py")
    noted.add_failure(SMALL, CASES["prompt"], ENGINES["transformers"], "too slow")
    results.content |= {key: noted.content[key] for key in ("missing", "failures")}
    said = tables.missing(results)
    assert "llama.cpp did not open SmolLM2 Q4_1: no .../llama.py" in said
    assert "transformers failed in SmolLM2 Q4_1, prompt: too slow" in said


def test_the_picture_has_a_bar_for_each_engine_and_case(measured):
    seconds = {"cpp": [1.0], "llama.cpp": [3.0], "cpp, 1 thread": [2.0]}
    results = measured({(SMALL.name, case): seconds for case in ("decode", "prompt")})
    drawn = picture.draw(results)
    assert ElementTree.fromstring(drawn) is not None
    assert drawn.count(">3.0<") == drawn.count(">1.0<") == 2
    assert "1 thread" not in drawn


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "record.json"
    made = record.Record(path, "avx2", {"rounds": 1})
    made.add_engine(ENGINES["ik_llama.cpp"], {"ik-llama-cpp-python": "0.1.5"})
    made.add(SMALL, CASES["decode"], ENGINES["cpp"], "seconds", 0.0123456)
    made.write()
    content = record.read(path)
    assert content == made.content
    assert content["cells"]["SmolLM2 Q4_1, decode"]["cpp"]["seconds"] == [0.01235]
    path.write_text('{"format": 0}', encoding="utf-8")
    with pytest.raises(ValueError, match="has format 0, this code reads 2"):
        record.read(path)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "Q6_K", "Q8_0", "BF16", "F32"])
def test_random_matrices_have_values_of_the_size_of_trained_ones(kind):
    matrix = matrices.random_matrix(np.random.default_rng(0), 32, 512, kind=kind)
    values = gguf.quants.dequantize(matrix, gguf.GGMLQuantizationType[kind])
    assert values.shape == (32, 512)
    assert 0.015 < values.std() < 0.03
    assert abs(values.mean()) < 0.004


def test_a_process_that_ends_is_a_failure_that_says_how():
    with EngineProcess(ENGINES["cpp"]) as process:
        answer = process.ask("open", model="nowhere.gguf", sequences=1, positions=64)
        assert "failure" in answer
        process.process.kill()
        assert "SIGKILL" in process.ask("load")["failure"]


def test_records_agree_where_their_intervals_overlap(measured):
    def decode(theirs):
        return measured({(SMALL.name, "decode"): {"cpp": [1.0] * 6, "transformers": theirs}})

    one = decode([12.0, 13.0, 12.5, 12.2, 12.8, 12.6])
    near = decode([12.9, 13.5, 13.2, 13.1, 13.4, 13.6])
    far = decode([14.0, 15.0, 14.5, 14.2, 14.8, 14.6])
    few = measured({(SMALL.name, "decode"): {"cpp": [1.0], "transformers": [20.0]}})
    assert "overlap in 1 of the 1 goals" in tables.agreement(one, near)
    assert "overlap in 1 of the 1 goals" in tables.agreement(one, few)
    found = tables.agreement(one, far)
    assert "overlap in 0 of the 1 goals" in found
    assert found.splitlines()[-1].startswith("| SmolLM2 Q4_1: decode, beside transformers")
    assert tables.agreement(one, None) == "There is no second record."
