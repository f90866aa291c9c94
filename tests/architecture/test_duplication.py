"""No two packages share fifteen lines in a row: what stands twice has one home."""

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {".py", ".c", ".cpp", ".h", ".cu", ".cuh", ".cl", ".clh", ".cmake", ".map"}
MOST = 14  # lines that two packages may have in common by chance


def test_packages_share_no_long_run_of_lines():
    places = defaultdict(set)
    for path in ROOT.glob("packages/*/**/*"):
        if path.suffix not in SOURCES or path.is_symlink() or {"tests", "build"} & {*path.parts}:
            continue
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if line]
        for start in range(len(lines) - MOST):
            places[tuple(lines[start : start + MOST + 1])].add(path.relative_to(ROOT))
    shared = {tuple(sorted(found)) for found in places.values() if len({*map(package, found)}) > 1}
    assert not shared, f"packages share more than {MOST} lines: {sorted(shared)}"


def package(path):
    return path.parts[1]
