"""Check that what is to be released says so everywhere, and print the tag of the release.

    python ci/release_check.py tensor-ops-cpp 1.2.3 [--ref tensor-ops-cpp-v1.2.3]

The version must be the static one of the package's pyproject.toml and the newest one of its
changelog, with a date; with --ref, the tag that is checked out must be that of the release.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main", "problems", "tag"]

ROOT = Path(__file__).resolve().parents[1]
# Releases and pre-releases in the one spelling that PyPI shows.
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.post\d+)?")
HEADING = re.compile(r"^## +(\S+)(?: +\((.*)\))? *$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def tag(package: str, version: str) -> str:
    """Return the tag of a release."""
    return f"{package}-v{version}"


def problems(package: str, version: str, ref: str | None = None, root: Path = ROOT) -> list[str]:
    """Return all that speaks against a release; `ref` is the tag that is checked out."""
    packages = sorted(path.parent.name for path in root.glob("packages/*/pyproject.toml"))
    if package not in packages:
        return [f"there is no package {package!r}; there are: {', '.join(packages)}"]
    found = []
    if not VERSION.fullmatch(version):
        found.append(f"{version!r} is no version like 1.2.3 or 1.2.3rc1")
    folder = root / "packages" / package
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if project.get("version") != version:
        found.append(
            f"packages/{package}/pyproject.toml has the version {project.get('version')}, "
            f"not {version}"
        )
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
