"""The wheel is pure Python with the kernels inside, and what is installed from it finds them."""

import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PACKAGE = Path(__file__).parents[1]
SHARED = PACKAGE.parent / "tensor-ops" / "src" / "tensor_ops" / "op"
# A request to the build backend, without a front end that would install it again.
MAKE_SDIST = "import hatchling.build as b, sys; print(b.build_sdist(sys.argv[1]))"


def build_wheel(source, folder):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(PACKAGE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run([sys.executable, "-c", MAKE_SDIST, str(folder)], cwd=PACKAGE, check=True)
    (path,) = folder.glob("*.tar.gz")
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


@pytest.mark.parametrize("name", ["arguments.py", "checks.py"])
def test_files_shared_with_tensor_ops_are_inside_as_files(wheel, sdist, name):
    original = (SHARED / name).read_bytes()
    assert zipfile.ZipFile(wheel).read(f"tensor_ops_opencl/{name}") == original
    with tarfile.open(sdist) as archive:
        (member,) = (each for each in archive if each.name.endswith(f"tensor_ops_opencl/{name}"))
        assert member.isfile()
        assert archive.extractfile(member).read() == original


def test_a_wheel_built_from_the_sdist_has_the_same_files(wheel, sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        # Python 3.11.2 has no filters, and Python 3.12 warns where none is set.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    built = build_wheel(unpacked, tmp_path / "wheels")
    files, expected = (zipfile.ZipFile(each) for each in (built, wheel))
    assert set(files.namelist()) == set(expected.namelist())
    for name in files.namelist():
        if not name.endswith("/RECORD"):
            assert files.read(name) == expected.read(name), name


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
        "assert 'tensor_ops' not in sys.modules\n"
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
