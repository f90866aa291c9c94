"""Names in ARCHITECTURE.md are those of files that exist."""

import re

import pytest

from architecture_page import PAGE, ROOT, named_paths

NATIVE = ROOT / "packages" / "tensor-ops-cpp" / "native"
FOLDERS = "packages|native|tests|benchmarks|docs|examples|tools|ci|docker"
# The table of includes, whose folders another test looks for, names them as C++ does.
TEXT = re.sub(r"\| folder of C\+\+ .*?\n\n", "", PAGE, flags=re.DOTALL)
PATH = re.compile(rf"(?:{FOLDERS})/\S*|noxfile\.py")
NAMED = sorted({each for each in named_paths(TEXT) if PATH.fullmatch(each)})


@pytest.mark.parametrize("name", NAMED)
def test_named_files_exist(name):
    pattern = re.sub(r"<\w+>", "*", name).rstrip("/")
    found = list(ROOT.glob(pattern))
    assert found, name
    assert all(path.is_dir() for path in found) or not name.endswith("/")


def test_short_paths_are_written_out():
    text = "`a.py`, `b.h` and `<op>.cu` in `cuda/ops/`; `cpp/isa/`, `tensor_ops/op/`, `cpp`"
    ops, core = "packages/tensor-ops-cuda/native/ops/", "packages/tensor-ops/src/tensor_ops/op/"
    of_cpp = ["packages/tensor-ops-cpp/native/isa/", core, "cpp"]
    assert named_paths(text) == [f"{ops}a.py", f"{ops}b.h", f"{ops}<op>.cu", *of_cpp]


def test_every_package_has_its_line():
    listed = re.findall(r"^\| `\w+` \| `packages/([\w-]+)/` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "packages").iterdir())


def test_every_folder_of_the_cpp_backend_has_its_line():
    listed = re.findall(r"^\| `(\w+)/` \| .* \| (?:yes|no) \|$", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in NATIVE.iterdir() if path.is_dir())


def test_contributing_links_it_first():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.search(r"\]\((.+?)\)", text)[1] == "ARCHITECTURE.md"
