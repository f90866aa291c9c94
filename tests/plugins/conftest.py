"""A virtual environment with the backends of ``packages`` installed into it."""

import os
import shutil
import subprocess
import sysconfig
import tomllib
import venv
from pathlib import Path
from textwrap import dedent

import pytest

PACKAGES = sorted(Path(__file__).with_name("packages").iterdir())


class Environment:
    """A virtual environment that sees the packages of the one that runs the tests."""

    def __init__(self, directory):
        venv.create(directory, symlinks=os.name != "nt")
        base = {"base": str(directory), "platbase": str(directory)}
        self.packages = Path(sysconfig.get_path("purelib", "venv", base))
        self.python = Path(sysconfig.get_path("scripts", "venv", base), "python")
        outer = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        lines = [f"import site; site.addsitedir({path!r})" for path in sorted(outer)]
        (self.packages / "outer.pth").write_text("\n".join(lines))
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TENSOR_OPS_", "PYTHON"))
        }
        self.variables |= {"XDG_CONFIG_HOME": str(directory), "LOCALAPPDATA": str(directory)}

    def run(self, code, *options, **variables):
        """Run code with ``TENSOR_OPS_<name>`` variables."""
        own = {f"TENSOR_OPS_{name}": value for name, value in variables.items()}
        return subprocess.run(
            [self.python, *options, "-c", dedent(code)],
            env=self.variables | own,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def output(self, code, *options, **variables):
        """Run code that succeeds and warns of nothing, and return what it prints."""
        done = self.run(code, *options, **variables)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()


def install(package, site_packages):
    """Install a package as its wheel would be: the modules, and the metadata beside them."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    shutil.copytree(package / "src", site_packages, dirs_exist_ok=True)
    name, version = project["name"].replace("-", "_"), project["version"]
    metadata = site_packages / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {project['name']}\nVersion: {version}\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points))


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("plugins"))
    for package in PACKAGES:
        install(package, environment.packages)
    return environment


@pytest.fixture
def empty_environment(tmp_path):
    return Environment(tmp_path)
