"""Packages of Debian in a folder of their own, where nothing of this system is changed."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from portable_checks.common import MissingProgramError, call, folder, program

__all__ = ["unpacked"]


def unpacked(
    place: Path, packages: Iterable[str], architecture: str | None = None, alone: bool = False
) -> Path:
    """Return a folder with some packages, and, unless `alone`, with what they need and is not here.

    The lists and archives of apt are kept in the folder; no rights are needed. Which packages were
    unpacked is in a file, so that this happens once.
    """
    wanted, system, note = sorted(packages), place / "system", place / "unpacked.txt"
    if note.is_file() and note.read_text(encoding="utf-8").split() == wanted:
        return system
    apt, dpkg = program("apt-get", "apt"), program("dpkg", "dpkg")
    archives = folder(place / "archives")
    for name in ("lists/partial", "cache/archives/partial"):
        (place / "apt" / name).mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::State::lists": place / "apt/lists",
        "Dir::Cache": place / "apt/cache",
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
    }
    if architecture:
        options |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    try:
        call([apt, "-qq", *words, "update"])
        needed = set() if alone else _needed([apt, *words], wanted)
        call([apt, "-qq", *words, "download", *wanted, *sorted(needed - {*wanted})], {}, archives)
    except subprocess.CalledProcessError as error:
        raise MissingProgramError(
            f"apt-get finds no {' '.join(wanted)} for {architecture or 'this system'}; take the "
            "packages of Debian 12"
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


def _needed(apt: list[str], wanted: list[str]) -> set[str]:
    """Return the packages that an installation would bring, as a dry run of it says."""
    command = [*apt, "--simulate", "--no-install-recommends", "install", *wanted]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {line.split()[1] for line in said.splitlines() if line.startswith("Inst ")}
