"""Wheels that are built, and installed and tested as a user would."""

import shutil
from pathlib import Path

import nox

from environments import (
    BY_FILE,
    CORE,
    DECODE,
    PACKAGES,
    ROOT,
    build,
    cpp_wheel,
    install_group,
    opencl_driver,
)

__all__ = ["run_wheels", "run_wheels_sample"]


def run_wheels(session: nox.Session) -> None:
    """Build and test the sdist and the wheel of every package, in dist/."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for package in PACKAGES:
        build(session, package)
    install_group(session, "wheels")
    where = ["tests/wheels", "--dist-folder=dist"]
    session.run("pytest", "-q", *where, *session.posargs, env=opencl_driver(session))


def run_wheels_sample(session: nox.Session) -> None:
    """Build two packages, and run the tests of wheels that take seconds."""
    folder = Path(session.create_tmp(), "dist").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    for package in (CORE, DECODE):
        build(session, package, str(folder))
    shutil.copy(cpp_wheel(session), folder)
    install_group(session, "wheels")
    where = ["tests/wheels", f"--dist-folder={folder}", "-m", "sample"]
    session.run("pytest", *BY_FILE, *where, *session.posargs)
