"""Check that what is to be released says so everywhere, and print the tag of the release.

    python ci/release_check.py tensor-ops-cpp 1.2.3 [--ref tensor-ops-cpp-v1.2.3]

The version must be that of the package and the newest one of its changelog, with a date; with
--ref, the tag that is checked out must be that of the release.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "HEADING",
    "VERSION",
    "find_version",
    "main",
    "packages",
    "problems",
    "tag",
    "version_of",
]

ROOT = Path(__file__).resolve().parents[1]
# Releases and pre-releases in the one spelling that PyPI shows.
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.post\d+)?")
HEADING = re.compile(r"^## +(\S+)(?: +\((.*)\))? *$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
ASSIGNED = re.compile(r'^(?:__version__|version) = "(.*)"$', re.MULTILINE)


def packages(root: Path = ROOT) -> list[str]:
    """Return the packages of a checkout."""
    return sorted(path.parent.name for path in root.glob("packages/*/pyproject.toml"))


def find_version(folder: Path) -> tuple[Path, re.Match[str]]:
    """Return the one place of a package's version: its file, and there the match of its line.

    That is its pyproject.toml, or the source file from which hatchling takes it.
    """
    path = folder / "pyproject.toml"
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    if "version" in settings["project"].get("dynamic", ()):
        path = folder / settings["tool"]["hatch"]["version"]["path"]
    found = list(ASSIGNED.finditer(path.read_text(encoding="utf-8")))
    if len(found) != 1:
        raise ValueError(f"{path} has {len(found)} lines like 'version = \"1.2.3\"', not one")
    return path, found[0]


def version_of(folder: Path) -> str:
    """Return the version of the package in a folder."""
    return find_version(folder)[1][1]


def tag(package: str, version: str) -> str:
    """Return the tag of a release."""
    return f"{package}-v{version}"


def problems(package: str, version: str, ref: str | None = None, root: Path = ROOT) -> list[str]:
    """Return all that speaks against a release; `ref` is the tag that is checked out."""
    if package not in packages(root):
        return [f"there is no package {package!r}; there are: {', '.join(packages(root))}"]
    found = []
    if not VERSION.fullmatch(version):
        found.append(f"{version!r} is no version like 1.2.3 or 1.2.3rc1")
    folder = root / "packages" / package
    path, match = find_version(folder)
    if match[1] != version:
        name = path.relative_to(root).as_posix()
        found.append(f"{name} has the version {match[1]}, not {version}")
    found += _problems_of_changelog(folder / "CHANGELOG.md", version)
    if ref is not None and ref != tag(package, version):
        found.append(f"{ref!r} is checked out; the tag of this release is {tag(package, version)}")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package")
    parser.add_argument("version")
    parser.add_argument("--ref", help="the name of the tag that is checked out")
    options = parser.parse_args(words)
    found = problems(options.package, options.version, options.ref)
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        print(tag(options.package, options.version))
    return 1 if found else 0


def _problems_of_changelog(path: Path, version: str) -> list[str]:
    name = "/".join(path.parts[-3:])
    newest = HEADING.search(path.read_text(encoding="utf-8"))
    if newest is None:
        return [f"{name} has no heading '## {version} (DATE)'"]
    if newest[1] != version:
        return [f"the newest version of {name} is {newest[1]}, not {version}"]
    if not DATE.fullmatch(newest[2] or ""):
        return [f"{name} dates {version} {newest[2] or 'nothing'!r}; write the day as 2026-01-31"]
    return []


if __name__ == "__main__":
    sys.exit(main())
