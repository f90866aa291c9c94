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

__all__ = ["run_release", "run_wheels", "run_wheels_sample"]


def run_wheels(session: nox.Session) -> None:
    """Build and test the sdist and the wheel of every package, in dist/."""
    _build_all(session)
    where = ["tests/wheels", "--dist-folder=dist", "-m", "not rehearsal"]
    session.run("pytest", "-q", *where, *session.posargs, env=opencl_driver(session))


def run_release(session: nox.Session) -> None:
    """Do all that a release takes but push it, with the wheels of this Python and platform."""
    _build_all(session)
    where = ["tests/wheels", "--dist-folder=dist", "-m", "not other_python"]
    session.run("pytest", "-q", *where, *session.posargs, env=opencl_driver(session))


def _build_all(session: nox.Session) -> None:
    """Build the sdist and the wheel of every package into an empty dist/."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for package in PACKAGES:
        build(session, package)
    install_group(session, "wheels")
    # The index refuses wheels whose tag does not say which systems they are for.
    for wheel in dist.glob("*-linux_*.whl"):
        session.run("auditwheel", "repair", "--wheel-dir", str(dist), str(wheel), silent=True)
        wheel.unlink()


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
