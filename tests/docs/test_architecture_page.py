"""What ARCHITECTURE.md names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NATIVE = ROOT / "packages" / "tensor-ops-cpp" / "native"
FOLDERS = "packages|native|tests|benchmarks|docs|examples|tools|ci|docker"
NAMED = sorted(set(re.findall(rf"`((?:{FOLDERS})/[^`\s]*|noxfile\.py)`", TEXT)))


@pytest.mark.parametrize("name", NAMED)
def test_named_files_exist(name):
    pattern = re.sub(r"<\w+>", "*", name).rstrip("/")
    found = list(ROOT.glob(pattern))
    assert found, name
    assert all(path.is_dir() for path in found) or not name.endswith("/")


def test_every_package_has_its_line():
    listed = re.findall(r"^\| `\w+` \| `packages/([\w-]+)/` \|", TEXT, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "packages").iterdir())


def test_every_folder_of_the_cpp_backend_has_its_line():
    listed = re.findall(r"^\| `(\w+)/` \| .* \| (?:yes|no) \|$", TEXT, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in NATIVE.iterdir() if path.is_dir())


def test_contributing_links_it_first():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.search(r"\]\((.+?)\)", text)[1] == "ARCHITECTURE.md"
