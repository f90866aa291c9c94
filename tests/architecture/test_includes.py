"""Includes of C++ files: only those that ARCHITECTURE.md allows to their folder."""

import re

import pytest

from architecture_page import PAGE, ROOT, full

# Includes begin at one of these. The headers of other programs include nothing else of ours.
ROOTS = ("native/", "packages/tensor-ops-cpp/native/")
PUBLIC = "native/include/"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
ROW = re.compile(r"^\| `([^`]+)` \| (.*) \|$", re.MULTILINE)


def table():
    """Return for each folder what it may include: folders, which end with a slash, and files."""
    rows = PAGE.partition("| folder of C++ | may include |")[2].partition("\n\n")[0]
    return {full(name): re.findall("`([^`]*)`", allowed) for name, allowed in ROW.findall(rows)}


def sources():
    """Return the texts of the C++ files that are in folders, by their names."""
    names = [
        path.relative_to(ROOT).as_posix()
        for root in ROOTS
        for path in (ROOT / root).glob("*/**/*")
        if path.suffix in (".cpp", ".h")
    ]
    return {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in names
        if not name.startswith(PUBLIC)
    }


def wrong_includes(name, text, folders):
    """Return what a file includes that its folder may not."""
    (folder,) = (each for each in folders if name.startswith(each))
    (root,) = (each for each in ROOTS if name.startswith(each))
    allowed = (folder.removeprefix(root), *folders[folder])
    return [
        each
        for each in INCLUDE.findall(text)
        if not any(each == one or (one.endswith("/") and each.startswith(one)) for one in allowed)
    ]


def test_every_folder_of_cpp_is_in_the_table():
    folders = table()
    for name in sources():
        assert sum(name.startswith(each) for each in folders) == 1, name
    for folder in folders:
        assert any(name.startswith(folder) for name in sources()), f"there is no {folder}"


def test_files_include_what_the_page_allows():
    folders, all_sources = table(), sources()
    wrong = {name: wrong_includes(name, text, folders) for name, text in all_sources.items()}
    assert {name: each for name, each in wrong.items() if each} == {}


def test_what_executors_share_may_include_no_file_of_one():
    """But what each package has of its own under the same name, or supplies."""
    of_packages = {
        path.relative_to(ROOT / root).as_posix()
        for root in ROOTS[1:]
        for path in (ROOT / root).rglob("*.h")
    }
    for folder, allowed in table().items():
        if folder.startswith("native/decode/"):
            reached = [
                each
                for each in of_packages
                if any(each == one or (one[-1] == "/" and each.startswith(one)) for one in allowed)
            ]
            assert reached == [], folder


@pytest.mark.parametrize(
    ("name", "included"),
    [
        ("native/decode/serving/sequences.cpp", "decode/executor/executable.h"),
        ("native/decode/program/program.h", "decode/serving/step_arrays.h"),
        ("native/decode/interface/decode_interface.cpp", "threads/threads.h"),
        ("native/checks/overlap.cpp", "arrays/array.h"),
        ("packages/tensor-ops-cpp/native/decode/nodes/add.cpp", "decode/executor/executable.h"),
        ("packages/tensor-ops-cpp/native/launch/plan.cpp", "decode/program/program.h"),
    ],
)
def test_an_include_that_is_not_allowed_is_found(name, included):
    text = f'#include "declaration/errors.h"\n#  include "{included}"\n#include <vector>\n'
    assert wrong_includes(name, text, table()) == [included]
