"""No source, test or script is longer than 600 lines."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "benchmarks",
    "ci",
    "docs/_extensions",
    "examples",
    "native",
    "packages",
    "tests",
    "tools",
)
SUFFIXES = {".c", ".cl", ".clh", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".py", ".pyi", ".rs", ".sh"}
MOST = 600


def test_no_file_is_longer():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths += [*ROOT.glob("*.py"), *ROOT.glob("packages/*/CMakeLists.txt")]
    lines = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for path in paths
        if (path.suffix in SUFFIXES or path.name == "CMakeLists.txt") and "build" not in path.parts
    }
    assert {"noxfile.py", "tests/architecture/test_lengths.py"} <= lines.keys()
    assert {name: count for name, count in lines.items() if count > MOST} == {}
