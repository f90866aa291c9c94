"""The examples that ``--help`` shows, and options anywhere among the words of a command."""

import itertools
import re
from importlib.metadata import entry_points

import pytest

from tensor_ops.__main__ import main, make_parser
from written_commands import parsed, split

COMMANDS = sorted(
    {(), *((name,) for name in make_parser()[1].choices)}
    | {tuple(each.name.split(".")) for each in entry_points(group="tensor_ops.commands")}
)
# Words of commands that may come in any order, but for those without a dash among themselves.
ANYWHERE = {
    "generate": [["m"], ["p"], ["--chat"], ["--temperature", "0.7"], ["--stop=x"]],
    "export": [["m"], ["out"], ["--quantize", "q8_0"], ["--max-seq-length", "64"]],
    "perplexity": [["m"], ["text.txt"], ["--context", "64"], ["--json"]],
    "bench decode": [["m"], ["--num-workers", "1"], ["--json", "x"], ["--backend=cpp"]],
    "explain": [["silu"], ["--dtype", "float16"], ["--json"], ["--shape", "4x4"]],
    "configure_backend": [["--backend", "cpp"], ["--force"], ["--config", "x"], ["-s"]],
    "bench": [["--ops", "silu"], ["--seconds", "1"], ["--json", "x"]],
    "tune": [["--ops", "silu"], ["--seconds", "1"], ["--dtype", "float32"]],
    "doctor": [["--require", "cpp"], ["--json"]],
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_examples_of_help_are_parsed(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    out = capsys.readouterr().out
    lines = re.findall(r"^(?:example:)? +((?:.*\| )?tensor-ops .*)$", out, re.MULTILINE)
    assert lines or "xample" not in out
    for line in lines:
        written, *_ = re.split(r" {2,}", line)  # what follows says what it does
        *_, words = split(written)
        parsed(words[1:])


@pytest.mark.parametrize("command", ANYWHERE)
def test_options_may_be_anywhere(command):
    groups = ANYWHERE[command]
    expected = None
    for order in itertools.permutations(groups):
        plain = [each for each in order if not each[0].startswith("-")]
        if plain != [each for each in groups if each in plain]:
            continue
        found = vars(parsed([*command.split(), *(word for group in order for word in group)]))
        found.pop("parser", None)
        expected = expected or found
        assert found == expected, order
