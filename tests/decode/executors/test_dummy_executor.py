"""An executor of a few lines runs models through all that executors share in C++.

It is built with native/decode/ and nothing of a package, so that a file of one that is included
there does not compile.
"""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from exported_models import LIMITS, SOURCES, Driver, export, words

NATIVE = Path(__file__).parents[3] / "native"
WORDS, PAGE = 260, 8
PROMPTS = [list(b"Once"), list(b"a long prompt, of several steps and pages" * 2), [7]]


@pytest.fixture(scope="module")
def dummy(tmp_path_factory, driver_program):
    """Runs commands on exported models with the dummy executor."""
    compiler = shutil.which("c++") or pytest.skip("there is no compiler")
    folder = tmp_path_factory.mktemp("dummy")
    sources = [*sorted(NATIVE.glob("decode/*/*.cpp")), NATIVE / "abi/guarded.cpp"]
    sources.append(SOURCES / "dummy_executor.cpp")
    together = folder / "dummy.cpp"
    together.write_text("".join(f'#include "{each}"\n' for each in sources), encoding="utf-8")
    library = folder / "libtensor_ops_dummy.so"
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    includes = [f"-I{NATIVE}", f"-I{NATIVE / 'include'}"]
    subprocess.run([compiler, *options, *includes, together, "-o", library], check=True)
    return Driver(driver_program, library)


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    return export(folder, tmp_path_factory.mktemp("dummy_model") / "model", page_size=PAGE)


def continued(prompt, count, ends=()):
    """Return the tokens by which the executor continues a prompt."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count and (
        len(tokens) == len(prompt) or tokens[-1] not in ends
    ):
        tokens.append((3 * tokens[-1] + len(tokens) - 1) % WORDS)
    return tokens[len(prompt) :]


def printed(*rows):
    return " ".join(f"{words(*row)} ;" for row in rows)


def test_the_facts_are_those_of_the_model_and_of_the_executor(model, dummy):
    _, info = dummy(words("open", model, 0), "info")
    # Words, logits and positions, sequences and tokens of a step, pages, layers; then one worker,
    # and some memory.
    of_model = words(WORDS, WORDS, 120, 3, 32, PAGE, 3 * 120 // PAGE, 2)
    assert info.endswith(words(" float32 0", of_model, "1 1 256"))


def test_sequences_are_continued(model, dummy):
    lines = [words("open", model, 1)]
    for index, prompt in enumerate(PROMPTS):
        lines += ["sequence", words("append", index, *prompt)]
    *_, together, alone = dummy(*lines, "generate 20 2 0 1", "generate 9 2")
    expected = [continued(prompt, 20) for prompt in PROMPTS]
    assert together == printed(expected[2], expected[0], expected[1])
    assert alone == printed(continued(PROMPTS[2], 29)[20:])


def test_a_sequence_ends_and_can_be_truncated_and_extended(model, dummy):
    tokens = continued(PROMPTS[0], 20)
    end = tokens[6]
    more = [*PROMPTS[0], *tokens[:2], 5, 6]
    *_, until, _, _, after, logits = dummy(
        words("open", model, 1),
        "sequence",
        words("append 0", *PROMPTS[0]),
        words("generate_until 20 0", end),
        words("truncate 0", len(PROMPTS[0]) + 2),
        "append 0 5 6",
        "generate 4 0",
        "logits 0",
    )
    assert until == words(*continued(PROMPTS[0], 20, ends=[end]))
    assert after == printed(continued(more, 4))
    bits = np.array([int(each, 16) for each in logits.split()], np.uint32).view(np.float32)
    assert np.flatnonzero(bits).tolist() == continued(more, 5)[-1:]


def first_step(model):
    """Return commands that write a step of three sequences into the arrays."""
    pages = LIMITS["max_seq_length"] // PAGE * 3
    lines = ["set tokens 7 8 9", "set positions 0 0 0", "set slots 0 1 2", "set selected 0 1 2"]
    return [words("open", model, 1), *lines, words("set page_table", *range(pages))]


def test_steps_are_run_on_arrays(model, dummy):
    steps = ["step 3 3", "array next 3", "steps 3 4 next", "steps 3 4 nowhere"]
    found = dummy(*first_step(model), *steps)
    expected = np.array([continued([token], 4) for token in (7, 8, 9)])
    assert found[-3:-1] == [words(*expected[:, 0]), words(*expected.T.flatten())]
    assert found[-1] == (
        "ValueError: run_steps: 'nowhere' is no output of the program with one int32 in a row"
    )


def test_steps_with_a_time_limit_are_those_without_as_far_as_they_go(model, dummy):
    """However many rows they are divided into."""
    steps = first_step(model)
    long, short = ["steps_within 1000 3 90 next"], ["steps_within 1e-12 3 90 next"]
    *_, without = dummy(*steps, "steps 3 90 next")
    *_, whole, last, fed = dummy(*steps, *long, "array positions 3", "array tokens 3")
    assert whole == without
    assert last == "89 89 89"
    assert fed == words(*without.split()[-6:-3])
    *_, one = dummy(*steps, *short)
    assert one == words(*without.split()[:3])


def test_steps_with_a_time_limit_are_checked_before_the_first(model, dummy):
    *_, refused, untouched = dummy(
        *first_step(model), "set positions 1 1 1", "steps_within 1000 3 120 next", "array next 3"
    )
    assert refused == (
        "ValueError: run_steps: positions must stay below 120, but slot 0 comes to 120"
    )
    assert untouched == "0 0 0"


def test_what_cannot_be_is_refused_by_what_executors_share(model, dummy):
    found = dummy(
        words("open", model, 2),
        words("open", model, 1, "int4"),
        words("open", model, 1),
        "sequence",
        words("append 0", WORDS),
        "generate 4 0",
        "step 1 1",
    )
    assert found[0] == "ValueError: open: num_threads must be from 0 to 1, got 2"
    assert found[1].startswith("ValueError: open: activations must be 'int8x2'")
    assert found[4] == "ValueError: append: tokens must be from 0 to 259, got 260"
    assert found[5] == "ValueError: generate: sequence 1 is empty; append tokens first"
    assert "this model is driven by sequences already" in found[6]
