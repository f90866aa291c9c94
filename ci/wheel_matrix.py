"""The matrix of ``ci/matrix.json``: on which machine which wheels of a package are built.

    python ci/wheel_matrix.py legs tensor-ops-cpp
    python ci/wheel_matrix.py complete tensor-ops-cpp DIST

`legs` prints the jobs of the package as JSON. `complete` fails if a wheel or the sdist is not in
DIST; a job that may fail, since its platform has not been seen to build yet, may be missing.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Leg", "legs", "main", "missing", "native_packages"]

ROOT = Path(__file__).resolve().parents[1]
MATRIX = ROOT / "ci" / "matrix.json"
# The wheel for this CPython is for all newer ones too: `wheel.py-api` of the packages.
STABLE_ABI = "cp312"


@dataclass(frozen=True)
class Leg:
    """A job: what cibuildwheel builds on one kind of machine."""

    platform: str
    architecture: str
    runner: str
    may_fail: bool
    identifiers: tuple[str, ...]


def native_packages() -> list[str]:
    """Return the packages that are built for each platform; all others are built once."""
    return list(json.loads(MATRIX.read_text(encoding="utf-8")))


def legs(package: str) -> list[Leg]:
    """Return the jobs of a package; none for one that is pure Python."""
    if not (ROOT / "packages" / package / "pyproject.toml").is_file():
        raise ValueError(f"there is no packages/{package}")
    found = json.loads(MATRIX.read_text(encoding="utf-8")).get(package, [])
    return [Leg(**{**leg, "identifiers": tuple(leg["identifiers"])}) for leg in found]


def missing(package: str, files: Sequence[str]) -> list[str]:
    """Return what a release of a package lacks: the sdist, or wheels by their identifiers."""
    stem = package.replace("-", "_")
    mine = [name for name in files if name.startswith(f"{stem}-")]
    wheels = [name.removesuffix(".whl").split("-")[2:] for name in mine if name.endswith(".whl")]
    lacking = [] if any(name.endswith(".tar.gz") for name in mine) else ["sdist"]
    needed = [leg for leg in legs(package) if not leg.may_fail]
    if not legs(package) and ["py3", "none", "any"] not in wheels:
        lacking.append("py3-none-any")
    return lacking + [
        identifier
        for leg in needed
        for identifier in leg.identifiers
        if not any(_is_wheel_of(identifier, *tags) for tags in wheels)
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("legs", "complete"):
        commands.add_parser(name).add_argument("package")
    commands.choices["complete"].add_argument("dist", type=Path)
    options = parser.parse_args(words)
    if options.command == "legs":
        jobs = [
            {
                "platform": leg.platform,
                "architecture": leg.architecture,
                "runner": leg.runner,
                "may_fail": leg.may_fail,
            }
            for leg in legs(options.package)
        ]
        print(json.dumps(jobs))
        return 0
    lacking = missing(options.package, [path.name for path in options.dist.iterdir()])
    for name in lacking:
        print(f"{options.dist} has no {name} of {options.package}", file=sys.stderr)
    return 1 if lacking else 0


def _is_wheel_of(identifier: str, python: str, abi: str, platforms: str) -> bool:
    version, _, rest = identifier.partition("-")
    kind, _, architecture = rest.partition("_")
    return (
        python == version.removesuffix("t")
        and abi == ("abi3" if version == STABLE_ABI else version)
        and any(
            tag.startswith(kind) and tag.endswith(f"_{architecture}")
            for tag in platforms.split(".")
        )
    )


if __name__ == "__main__":
    sys.exit(main())
