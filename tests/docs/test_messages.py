"""The messages that the page about troubleshooting explains are those of the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
SOURCES = [
    *ROOT.glob("packages/*/src/**/*.py"),
    *ROOT.glob("packages/*/native/**/*"),
    *ROOT.glob("native/**/*"),
]
# Messages of Python, the system or a driver, not of our code.
OF_OTHERS = {
    "No module named 'tensor_ops",
    "OSC UCX component priority set inside component query failed",
    "Permission denied",
    "There are not enough slots available",
    "got an unexpected keyword argument",
    "prterun has detected an attempt to run as root",
}


@pytest.fixture(scope="module")
def code():
    """The sources, with string literals that follow one another joined, as their compilers do."""
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in SOURCES
        if path.suffix in {".py", ".cpp", ".h", ".cu", ".cuh"}
    )
    joined = re.sub(r'"\s*\n\s*[rf]?"', "", text)
    return re.sub(r"\\(['\"])", r"\1", joined)


def messages():
    """Yield the words of each constant part of the messages that the tables explain.

    Names of arguments, files and devices are left out: the code fills them in.
    """
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        for message in re.findall(r"`([^`]+)`", line.split(" | ")[0]) if line[:2] == "| " else ():
            for part in message.split("..."):
                words = re.findall(r"(?<![\w.'-])[A-Za-z]{2,}(?![\w.'-])", part)
                if len(words) > 1 and part.strip() not in OF_OTHERS:
                    yield [word for word in words if word not in ("approximate", "out", "and")]


@pytest.mark.parametrize("words", list(messages()), ids=" ".join)
def test_message_is_one_of_the_code(words, code):
    between = r"[^\n]{0,60}?(?:\n[^\n]{0,60}?)?"
    assert re.search(rf"\b{between.join(words)}\b", code)
