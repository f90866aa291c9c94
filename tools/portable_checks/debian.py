"""Packages of Debian in a folder of their own, where nothing of this system is changed."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from portable_checks.common import MissingProgramError, call, folder, program

__all__ = ["unpacked", "unpacked_source"]

MIRROR = "http://deb.debian.org/debian"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpacked(
    place: Path,
    packages: Iterable[str],
    architecture: str | None = None,
    alone: bool = False,
    suite: str | None = None,
) -> Path:
    """Return a folder with some packages, and, unless `alone`, with what they need and is not here.

    They are of this system's suite of Debian or of another. The lists and archives of apt are kept
    in the folder; no rights are needed. Which packages were unpacked is in a file, so that this
    happens once.
    """
    wanted, system, note = sorted(packages), place / "system", place / "unpacked.txt"
    if note.is_file() and note.read_text(encoding="utf-8").split() == wanted:
        return system
    dpkg, archives = program("dpkg", "dpkg"), folder(place / "archives")
    options: dict[str, str] = {}
    if architecture:
        options |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
    apt = _apt(place, suite, options)
    try:
        call([*apt, "-qq", "update"])
        needed = set() if alone else _needed(apt, wanted)
        call([*apt, "-qq", "download", *wanted, *sorted(needed - {*wanted})], {}, archives)
    except subprocess.CalledProcessError as error:
        raise MissingProgramError(
            f"apt-get finds no {' '.join(wanted)} for {architecture or 'this system'}; take the "
            f"packages of Debian's {suite or 'bookworm'}"
        ) from error
    folder(system)
    for archive in sorted(archives.glob("*.deb")):
        call([dpkg, "-x", str(archive), str(system)])
    # Since Debian 12 all of it is in /usr, where not every archive has it.
    if (system / "lib").is_dir() and not (system / "lib").is_symlink() and not architecture:
        shutil.copytree(system / "lib", system / "usr/lib", symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(system / "lib")
    shutil.rmtree(archives)
    note.write_text("\n".join(wanted), encoding="utf-8")
    return system


def unpacked_source(place: Path, package: str, suite: str) -> Path:
    """Return the folder of a package's sources, as they are before Debian's changes."""
    apt, sources = _apt(place, suite, {}), place / "sources"
    if not sources.is_dir():
        archives = folder(place / "archives")
        try:
            call([*apt, "-qq", "update"])
            call([*apt, "-qq", "source", "--download-only", "--tar-only", package], {}, archives)
        except subprocess.CalledProcessError as error:
            raise MissingProgramError(f"{suite} has no sources of {package}") from error
        (archive,) = archives.glob("*.orig.tar.*")
        unfinished = folder(place / "unfinished")
        shutil.unpack_archive(archive, unfinished, filter="data")
        shutil.rmtree(archives)
        unfinished.rename(sources)
    (found,) = sources.iterdir()
    return found


def _apt(place: Path, suite: str | None, options: dict[str, str]) -> list[str]:
    """Return the command of apt whose lists and archives are in a folder."""
    for name in ("lists/partial", "cache/archives/partial"):
        (place / "apt" / name).mkdir(parents=True, exist_ok=True)
    options |= {
        "Dir::State::lists": str(place / "apt/lists"),
        "Dir::Cache": str(place / "apt/cache"),
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }
    if suite:
        if not KEYS.is_file():
            raise MissingProgramError(f"{KEYS} is missing; apt-get install debian-archive-keyring")
        line = f"[signed-by={KEYS}] {MIRROR} {suite} main"
        (place / "sources.list").write_text(f"deb {line}\ndeb-src {line}\n", encoding="utf-8")
        options["Dir::Etc::SourceList"] = str(place / "sources.list")
        options["Dir::Etc::SourceParts"] = "/dev/null"
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return [program("apt-get", "apt"), *words]


def _needed(apt: list[str], wanted: list[str]) -> set[str]:
    """Return the packages that an installation would bring, as a dry run of it says."""
    command = [*apt, "--simulate", "--no-install-recommends", "install", *wanted]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[1] for line in said.splitlines() if line.startswith("Inst ")}
