"""The wheel is pure Python with the kernels inside, and what is installed from it finds them."""

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PACKAGE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(PACKAGE)], check=True)
    (path,) = folder.glob("*.whl")
    return path


def requirements(wheel):
    """Return what the wheel's metadata asks for."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(archive.read(name).decode())
    return [Requirement(each) for each in metadata.get_all("Requires-Dist")]


def test_it_is_pure_python_with_the_kernels_inside(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = PACKAGE / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix in {".py", ".cl", ".clh", ".typed"}
    }
    assert files <= inside
    assert any(name.endswith(".cl") for name in files)


@pytest.mark.parametrize(
    ("extra", "packages"),
    [("pocl", {"pyopencl"}), ("intel", {"intel-opencl-rt", "intel-cmplr-lib-rt"})],
)
@pytest.mark.parametrize(("system", "machine"), [("linux", "x86_64"), ("win32", "AMD64")])
def test_an_extra_brings_a_driver(wheel, extra, packages, system, machine):
    place = {"extra": extra, "sys_platform": system, "platform_machine": machine}
    brought = [each for each in requirements(wheel) if "extra" in str(each.marker)]
    assert {each.name for each in brought if each.marker.evaluate(place)} == packages


@pytest.mark.parametrize(("system", "machine"), [("linux", "aarch64"), ("darwin", "arm64")])
def test_where_there_are_no_wheels_of_intels_the_extra_asks_for_none(wheel, system, machine):
    place = {"extra": "intel", "sys_platform": system, "platform_machine": machine}
    assert not [each for each in requirements(wheel) if each.marker and each.marker.evaluate(place)]


def test_installed_it_finds_its_kernels(wheel, python, tmp_path, device):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import numpy as np, tensor_ops_opencl as t\n"
        "print(t.__file__, t.silu(np.ones(3, np.float32)))\n"
    )
    place, _, result = python(code).partition(" ")
    assert place.startswith(str(site))
    assert "0.731" in result


def test_it_runs_from_within_the_wheel(wheel, python, device):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import numpy as np, tensor_ops_opencl as t\n"
        "print(t.__file__, t.silu(np.ones(3, np.float32)))\n"
    )
    place, _, result = python(code).partition(" ")
    assert place.startswith(str(wheel))
    assert "0.731" in result
