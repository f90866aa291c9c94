"""The packages of this checkout, and the Pythons that their wheels are installed for."""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = [
    "HERE",
    "NATIVE",
    "PACKAGES",
    "PYTHONS",
    "ROOT",
    "Environment",
    "Interpreter",
    "build_wheel",
    "project",
    "run",
    "tag_of",
]

ROOT = Path(__file__).parents[2]
PYTHONS = ["3.11", "3.12", "3.13"]
HERE = ".".join(map(str, sys.version_info[:2]))
# Requirements of the conformance suite and its OpenCL backend.
SUITE = ["pyopencl[pocl]>=2024.1", "pytest>=9", "hypothesis>=6.150", "mpmath>=1.3"]


def project(package):
    """Return the settings of a package."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
# Requirements from elsewhere, apart from OpenCL's and PyTorch's, which few tests install.
DEPENDENCIES = sorted(
    {
        each
        for package in PACKAGES
        if package not in ("tensor-ops-opencl", "tensor-ops-torch")
        for each in project(package)["project"]["dependencies"]
        if not each.startswith("tensor-ops")
    }
)
NATIVE = [package for package in PACKAGES if "scikit-build" in project(package)["tool"]]


def tag_of(version):
    """Return the Python tag of the native wheels for a Python: one is for 3.12 and newer."""
    return "cp311" if version == "3.11" else "cp312"


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine, and where it keeps what it needs."""

    version: str
    executable: str
    folder: Path

    @cached_property
    def wheelhouse(self):
        """The wheels of everybody else, downloaded once for all that is installed from them."""
        return self._download("wheelhouse", DEPENDENCIES)

    @cached_property
    def suite_wheelhouse(self):
        """Packages that the backends' conformance suite needs besides."""
        return self._download("suite", [*DEPENDENCIES, *SUITE])

    def _download(self, name, requirements):
        house = self.folder / name
        self.pip("download", "--only-binary=:all:", "-d", house, *requirements)
        return house

    def pip(self, command, *words):
        """Run pip, which has the network, on its own."""
        return run(self._with_pip, "-m", "pip", command, "-q", *words, cwd=self.folder)

    @cached_property
    def _with_pip(self):
        """A Python that has pip, for all environments: an own one for each takes seconds."""
        run(self.executable, "-m", "venv", self.folder / "tools")
        return self.folder / "tools" / "bin" / "python"

    def environment(self, name):
        """Return an empty environment."""
        place = self.folder / name
        run(self.executable, "-m", "venv", "--without-pip", place)
        return Environment(place, self._with_pip)


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty folder beside it to work in."""

    place: Path
    _with_pip: Path

    @property
    def work(self):
        folder = self.place.with_name(f"{self.place.name}-work")
        folder.mkdir(exist_ok=True)
        return folder

    def pip(self, command, *words):
        """Run pip on what is installed here."""
        python = self.place / "bin" / "python"
        words = ["-m", "pip", f"--python={python}", command, *words]
        return run(self._with_pip, *words, cwd=self.work)

    def install(self, *words, folders):
        """Install from folders, without network."""
        find = [f"--find-links={folder}" for folder in folders]
        # Python compiles the modules that are imported, which are few of them.
        return self.pip("install", "-q", "--no-index", "--no-compile", *find, *words)

    def python(self, *words, **options):
        return run(self.place / "bin" / "python", *words, cwd=self.work, **options)

    def command(self, *words, **options):
        return run(self.place / "bin" / "tensor-ops", *words, cwd=self.work, **options)


def run(*words, status=0, variables=None, **options):
    """Run a program that ends with the status; return what it printed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TENSOR_OPS_", "PYTHONPATH"))}
    done = subprocess.run(
        list(map(str, words)),
        env=kept | {"PYTHONWARNINGS": "", **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == status, f"{words}: exit {done.returncode}\n{done.stdout}"
    return done.stdout


def build_wheel(tree, folder):
    """Build the wheel of a package in isolation, in environments that uv makes quickly."""
    words = ["--wheel", "--installer", "uv", "--outdir", folder, tree]
    run(sys.executable, "-m", "build", *words)


def executable(version):
    """Return the Python of a version that starts, the oldest of its releases on this machine."""
    names = [sys.executable, shutil.which(f"python{version}"), f"/usr/bin/python{version}"]
    # pyenv has programs on the PATH for versions that are turned off.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names += sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    started = {name: release(name) for name in names if name and Path(name).exists()}
    fitting = [name for name, found in started.items() if found[:2] == version.split(".")]
    return min(fitting, key=lambda name: [int(part) for part in started[name]], default=None)


def release(name):
    """Return the numbers of a Python that can make environments, as texts; of others none."""
    # Debian has its parts in packages of their own.
    code = "import ensurepip, sys, venv; print(*sys.version_info[:3])"
    done = subprocess.run([name, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.split()
