"""ARCHITECTURE.md, and the files and folders that its short paths stand for."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
# Folders for which the beginnings of paths stand.
SHORT = {each: f"packages/tensor-ops-{each}/native" for each in ("cpp", "cuda")} | {
    path.name: path.relative_to(ROOT).as_posix() for path in ROOT.glob("packages/*/src/*")
}
# Several files of one folder, as in "`a.py` and `b.py` in `tensor_ops/`".
LISTED = re.compile(r"((?:`[\w<>]+\.\w+`(?:, | and ))*`[\w<>]+\.\w+`) in `([^`]+/)`")


def full(path):
    """Return the path in the repository that one of the page stands for."""
    first, slash, rest = path.partition("/")
    return f"{SHORT[first]}/{rest}" if slash and first in SHORT else path


def named_paths(text):
    """Return all that is named in a text of the page, paths as those in the repository."""
    text = LISTED.sub(lambda match: re.sub("`(.+?)`", rf"`{match[2]}\1`", match[1]), text)
    return [full(each) for each in re.findall("`([^`]+)`", text)]
