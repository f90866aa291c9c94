"""Contents of the sdists and wheels, before anything is installed."""

import base64
import configparser
import csv
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.licenses import canonicalize_license_expression

from interpreters import HERE, NATIVE, ROOT, build_wheel, project, run, tag_of
from release_check import version_of

# In bytes, as the index counts them.
LARGEST = {"tensor-ops-cpp": 5_000_000, "tensor-ops-cuda": 30_000_000}
LARGEST_PURE = 500_000
# Components compiled into a native package, by their names in the notices and the SBOM.
COMPILED_IN = {"tensor-ops-cpp": ["nanobind", "robin-map"]}
COMPILED_IN["tensor-ops-cuda"] = [*COMPILED_IN["tensor-ops-cpp"], "cudart"]


def names(wheel):
    """Return the files of a wheel; auditwheel writes its folders too."""
    return [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]


def metadata(wheel):
    (name,) = (name for name in names(wheel) if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(zipfile.ZipFile(wheel).read(name).decode())


def same_for_all_pythons(wheel):
    """Return the files of a wheel, the extension module by its name only."""
    return {re.sub(r"\.(cpython-[\w-]+|abi3)\.so$", "", name) for name in names(wheel)}


@pytest.mark.sample
def test_the_index_takes_all(dist):
    files = [path for path in dist.iterdir() if path.suffix in {".whl", ".gz"}]
    run(sys.executable, "-m", "twine", "check", "--strict", *files)


def test_each_wheel_has_what_a_wheel_has(package, wheel):
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel(package))


def test_size(package, wheel, sdist):
    assert wheel(package).stat().st_size < LARGEST.get(package, LARGEST_PURE)
    assert sdist(package).stat().st_size < LARGEST_PURE


def test_wheel_has_every_file_of_the_package(package, wheel):
    source = ROOT / "packages" / package / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix in {".py", ".pyi", ".typed", ".cl", ".clh"}
    }
    assert wanted <= set(names(wheel(package)))


def test_record_has_every_file_with_its_hash(package, wheel):
    archive, inside = zipfile.ZipFile(wheel(package)), names(wheel(package))
    (record,) = (name for name in inside if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(archive.read(record).decode().splitlines()))
    assert sorted(name for name, *_ in rows) == sorted(inside)
    for name, digest, size in rows:
        content = archive.read(name)
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        wanted = ("", "") if name == record else (f"sha256={sha256}", str(len(content)))
        assert (digest, size) == wanted, name


def test_wheel_has_nothing_else(package, wheel):
    """One package, one folder of metadata: no tests, no sources but headers, nothing else."""
    stem = package.replace("-", "_")
    version = version_of(ROOT / "packages" / package)
    tops = {name.partition("/")[0] for name in names(wheel(package))}
    assert tops == {stem, f"{stem}-{version}.dist-info"}
    sources = {name for name in names(wheel(package)) if name.endswith((".cpp", ".h", ".cu"))}
    headers = {name for name in sources if name.startswith("tensor_ops_cpp/include/tensor_ops/")}
    assert sources == headers
    assert bool(headers) is (package == "tensor-ops-cpp")


def test_wheel_has_what_programs_in_cpp_are_built_with(wheel):
    """The library, headers, and files of CMake and pkg-config."""
    inside = set(names(wheel("tensor-ops-cpp")))
    shared = ROOT / "native/include"
    headers = {path.relative_to(shared).as_posix() for path in shared.rglob("*.h")}
    assert {f"tensor_ops_cpp/include/{name}" for name in headers} <= inside
    files = ["tensor_opsConfig.cmake", "tensor_opsConfigVersion.cmake", "tensor_opsTargets.cmake"]
    assert {f"tensor_ops_cpp/cmake/{name}" for name in files} <= inside
    pkg_config = ["tensor-ops.pc", "tensor-ops-cpp.pc"]
    assert {f"tensor_ops_cpp/pkgconfig/{name}" for name in pkg_config} <= inside


def test_sdist_has_only_what_is_in_the_repository(package, sdist):
    with tarfile.open(sdist(package)) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    listed = _in_the_repository(ROOT / "packages" / package)
    if package in NATIVE:
        listed += [f"native/{name}" for name in _in_the_repository(ROOT / "native")]
    if not listed:
        pytest.skip("this checkout has no git history to compare with")
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= inside
    # Hatchling takes a .gitignore with it.
    assert inside - set(listed) <= {"PKG-INFO", ".gitignore"}


def test_sdist_of_a_native_package_has_what_they_share(native_package, sdist):
    with tarfile.open(sdist(native_package)) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    shared = {path for path in (ROOT / "native").rglob("*") if path.is_file()}
    assert {path.relative_to(ROOT).as_posix() for path in shared} <= inside


def _in_the_repository(folder):
    """Return the files below a folder that git knows, none without a git history."""
    words = ["git", "ls-files"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.split()


def _content(wheel, name):
    """Return a file of a wheel, of its RECORD the lines in any order."""
    content = wheel.read(name)
    return sorted(content.splitlines()) if name.endswith(".dist-info/RECORD") else content


def test_wheel_of_a_pure_package_is_the_same_from_sdist_and_tree(package, wheel):
    if package in NATIVE:
        pytest.skip("test_wheel_of_a_native_package_is_the_same_from_sdist_and_tree looks at it")
    with tempfile.TemporaryDirectory() as folder:
        build_wheel(ROOT / "packages" / package, folder)
        (from_tree,) = Path(folder).glob("*.whl")
        ours, theirs = zipfile.ZipFile(wheel(package)), zipfile.ZipFile(from_tree)
        assert sorted(ours.namelist()) == sorted(theirs.namelist())
        assert all(_content(ours, name) == _content(theirs, name) for name in ours.namelist())


def test_wheel_of_a_native_package_is_the_same_from_sdist_and_tree(
    native_package, wheel, dist, interpreter
):
    """That of this Python comes from the sdist, those of the others from the tree."""
    from_sdist = wheel(native_package)
    tag = tag_of(interpreter.version)
    others = list(dist.glob(f"{native_package.replace('-', '_')}-*-{tag}-*.whl"))
    if tag == tag_of(HERE) or not others:
        pytest.skip(f"no wheel of {native_package} for Python {interpreter.version} from the tree")
    assert same_for_all_pythons(others[0]) == same_for_all_pythons(from_sdist)


def test_metadata(package, wheel):
    found = metadata(wheel(package))
    assert found["Name"] == package
    assert found["Version"] == version_of(ROOT / "packages" / package)
    assert found["Requires-Python"] == ">=3.11"
    assert tuple(map(int, found["Metadata-Version"].split("."))) >= (2, 4)


def test_licences_as_in_pep_639(package, wheel):
    found = metadata(wheel(package))
    expression = found["License-Expression"]
    assert expression == canonicalize_license_expression(expression)
    assert expression.startswith("Apache-2.0")
    assert found["License"] is None
    assert not [each for each in found.get_all("Classifier") if each.startswith("License ::")]
    files = found.get_all("License-File")
    assert "LICENSE" in files
    inside = names(wheel(package))
    assert all(
        any(name.endswith(f".dist-info/licenses/{file}") for name in inside) for file in files
    )


def test_what_is_compiled_in_is_named(native_package, wheel):
    """In the notices for readers of licences, and in an SBOM (PEP 770) for programs."""
    archive, inside = zipfile.ZipFile(wheel(native_package)), names(wheel(native_package))
    (notices,) = (name for name in inside if "licenses/THIRD_PARTY_NOTICES" in name)
    (bill,) = (name for name in inside if ".dist-info/sboms/" in name)
    text = archive.read(notices).decode()
    document = archive.read(bill).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
    found = json.loads(document)
    assert found["metadata"]["component"]["version"] == metadata(archive.filename)["Version"]
    listed = {component["name"]: component["version"] for component in found["components"]}
    assert sorted(listed) == sorted(COMPILED_IN[native_package])
    assert all(version[0].isdigit() for version in listed.values())
    assert all(name in text for name in listed)
    assert metadata(archive.filename)["License-Expression"] != "Apache-2.0"


def test_wheel_says_how_it_was_configured(wheel):
    archive = zipfile.ZipFile(wheel("tensor-ops-cpp"))
    (bill,) = (name for name in names(archive.filename) if ".dist-info/sboms/" in name)
    component = json.loads(archive.read(bill))["metadata"]["component"]
    configuration = {each["name"]: each["value"] for each in component["properties"]}
    assert configuration.keys() == {"tensor-ops:levels", "tensor-ops:decode"}
    assert configuration["tensor-ops:decode"] == "on"
    assert configuration["tensor-ops:levels"]


def test_registered_as_a_backend_or_with_commands(package, wheel):
    """The entry points are what tensor-ops, or vLLM, finds the package by."""
    wanted = project(package)["project"].get("entry-points", {})
    known = {f"tensor_ops.{what}" for what in ("backends", "commands", "variables")}
    assert wanted.keys() <= known | {"vllm.general_plugins"}
    assert wanted or package in ("tensor-ops", "tensor-ops-devices")
    archive = zipfile.ZipFile(wheel(package))
    points = configparser.ConfigParser()
    points.optionxform = str  # names of variables have capitals
    for name in archive.namelist():
        if name.endswith(".dist-info/entry_points.txt"):
            points.read_string(archive.read(name).decode())
    assert {group: dict(points[group]) for group in wanted} == wanted
