"""The command line on any words: an exit status and, for a failure, one line that says why."""

import contextlib
import io
import os
import tempfile
from pathlib import Path

from choices import Choices
from outputs import OUTPUTS, output

from tensor_ops.__main__ import main

__all__ = ["try_input"]

# No system passes a word with a zero byte.
WORDS = [
    "configure_backend", "configure-backend", "info", "explain", "doctor", "bench", "--help",
    "--version", "--show", "-s", "--backend=cpp", "--backend", "-b", "auto", "cuda", "cdua",
    "--force", "-f", "-fs", "--priority", "-p", "cpp,cuda,python", "cpp,,cpp", ",", "--config",
    "--json", "silu", "rope", "rms_norm", "--shape", "128x4096", "2x", "x", "0x4",
    "9999999999x9999999999", "-1x3", "--dtype", "float16", "float99", "--", "-", "", "\1", "\udc80",
    "\N{SNOWMAN}", "--backend=", "--json=", "=", "--Show", "--sh", "-bcpp", "-pcpp", "@words", "%s",
    "{}", "--require", "--ops", "1e999", "'", "\n", "generate", "export", "--chat", "x.gguf",
]  # fmt: skip
SEEDS = [bytes([0, 8]), bytes([2, 10]), bytes([3, 26, 29, 30]), bytes([4]), bytes([0, 12, 13])]
# These take too long to be run as such; their options are parsed all the same.
SLOW = {"bench", "doctor", "test_capabilities", "test-capabilities"}
_folder = tempfile.TemporaryDirectory(prefix="fuzz-command-")
CONFIG = Path(_folder.name, "backend.json")


def try_input(data):
    choices = Choices(data)
    words = [_word(choices) for _ in range(min(len(data), 12))]
    if SLOW & set(words) and not {"--help"} & set(words):
        words.append("--none-such")
    os.chdir(_folder.name)
    os.environ["TENSOR_OPS_CONFIG"] = str(CONFIG)
    CONFIG.write_text("{}")
    kind = choices.pick(OUTPUTS)
    # As the real one is: what has no place in UTF-8 is escaped.
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with (
        output(kind) as out,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            status = main(words)
        except SystemExit as exit:
            status = exit.code
        err.flush()
    told = err.buffer.getvalue().decode()
    assert status in (0, 1, 2), (words, status, told)
    assert "Traceback" not in told, (words, told)
    silent = status == 0 or kind != "memory"  # nobody is told of a pipe that no one reads
    assert silent or "tensor-ops" in told, (words, status, told)


def _word(choices):
    word = choices.pick(WORDS)
    if choices.rarely():
        word += choices.pick(WORDS)
    # Files stay in the folder that goes at the end.
    return word if os.sep not in word else "x"
