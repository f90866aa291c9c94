"""Raise the version of a package, and say so in its changelog and in what requires it.

    python ci/raise_version.py tensor-ops-cpp 0.4.0

Unreleased notes at the top of the changelog become those of the version, with the date of the day;
where there are none, a section for them is begun, and the command dates it when it is run again.
Packages that require this one, and the guide to a package of one's own, require the version or a
later one, up to the next that may break them.
"""

import argparse
import datetime
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from release_check import HEADING, ROOT, VERSION, find_version, packages

__all__ = ["bounds", "main", "raise_version"]


def raise_version(package: str, version: str, today: str, root: Path = ROOT) -> list[Path]:
    """Write the version everywhere; return the files that have changed.

    Raises
    ------
    ValueError
        If there is no such package, if the version is not of the form of releases or not a later
        one, or if the changelog says that it was released. Nothing is written then.
    """
    if package not in packages(root):
        raise ValueError(f"there is no package {package!r}; there are: {', '.join(packages(root))}")
    if not VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is no version like 1.2.3 or 1.2.3rc1")
    folder = root / "packages" / package
    place, match = find_version(folder)
    if Version(version) < Version(match[1]):
        raise ValueError(f"{package} has the version {match[1]}, which is later than {version}")
    changelog = folder / "CHANGELOG.md"
    written = {changelog: _changelog(changelog.read_text(encoding="utf-8"), version, today)}
    text = place.read_text(encoding="utf-8")
    written[place] = text[: match.start(1)] + version + text[match.end(1) :]
    required = re.compile(rf"({re.escape(package)}(?:\[[\w,-]+\])?)>=[\w.]+,<[\w.]+")
    for path in (*sorted(root.glob("packages/*/pyproject.toml")), root / "CONTRIBUTING.md"):
        text = written.get(path) or path.read_text(encoding="utf-8")
        written[path] = required.sub(rf"\g<1>{bounds(version)}", text)
    changed = [path for path in written if written[path] != path.read_text(encoding="utf-8")]
    for path in changed:
        path.write_text(written[path], encoding="utf-8")
    return changed


def bounds(version: str) -> str:
    """Return what a package requires that was tested with a version.

    Below 1.0 a minor version may break it, from there on a major one.

    >>> bounds("0.4.0"), bounds("0.4.1"), bounds("1.2.3")
    ('>=0.4,<0.5', '>=0.4.1,<0.5', '>=1.2.3,<2')
    """
    parsed = Version(version)
    end = f"0.{parsed.minor + 1}" if parsed.major == 0 else str(parsed.major + 1)
    return f">={version.removesuffix('.0')},<{end}"


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package")
    parser.add_argument("version")
    options = parser.parse_args(words)
    try:
        changed = raise_version(options.package, options.version, datetime.date.today().isoformat())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for path in changed:
        print(path.relative_to(ROOT).as_posix())
    return 0


def _changelog(text: str, version: str, today: str) -> str:
    newest = HEADING.search(text)
    if newest is None:
        raise ValueError("the changelog has no heading like '## 1.2.3 (2026-01-31)'")
    before, after = text[: newest.start()], text[newest.end() :]
    if newest[2] == "unreleased":
        if not HEADING.split(after)[0].strip():
            raise ValueError(f"the changelog says nothing of {newest[1]} yet: write what is new")
        return f"{before}## {version} ({today}){after}"
    if newest[1] == version:
        raise ValueError(f"the changelog says that {version} was released: {newest[0]}")
    return f"{before}## {version} (unreleased)\n\n{newest[0]}{after}"


if __name__ == "__main__":
    sys.exit(main())
