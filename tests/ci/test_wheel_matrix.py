"""The list of wheels is what cibuildwheel makes of the packages' settings."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import wheel_matrix
from wheel_matrix import ROOT, Leg, legs, missing, native_packages

PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
JOBS = [(package, leg) for package in native_packages() for leg in legs(package)]


def settings(package):
    text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def test_every_native_package_is_listed():
    native = [p for p in PACKAGES if "scikit_build" in settings(p)["build-system"]["build-backend"]]
    assert sorted(native_packages()) == native
    assert [p for p in PACKAGES if "cibuildwheel" in settings(p).get("tool", {})] == native


@pytest.mark.parametrize("package", native_packages())
def test_one_wheel_is_for_all_newer_pythons(package):
    assert settings(package)["tool"]["scikit-build"]["wheel"]["py-api"] == wheel_matrix.STABLE_ABI


@pytest.mark.parametrize(
    ("package", "leg"), JOBS, ids=[f"{p}-{leg.platform}-{leg.architecture}" for p, leg in JOBS]
)
def test_identifiers_are_those_of_cibuildwheel(package, leg: Leg):
    where = ["--platform", leg.platform, "--archs", leg.architecture]
    assert printed(package, *where) == list(leg.identifiers)


@pytest.mark.parametrize("platform", ["linux", "macos", "windows"])
@pytest.mark.parametrize("package", native_packages())
def test_no_architecture_is_left_out(package, platform):
    table = settings(package)["tool"]["cibuildwheel"]
    listed = [leg.architecture for leg in legs(package) if leg.platform == platform]
    assert listed == table.get(platform, {}).get("archs", [])


def printed(package, *where):
    if shutil.which("cibuildwheel") is None:
        pytest.skip("cibuildwheel is not installed; nox -s workflows installs it")
    command = ["cibuildwheel", "--print-build-identifiers", *where, f"packages/{package}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_pure_package_has_no_jobs():
    assert legs("tensor-ops") == []


def test_an_unknown_package_is_an_error():
    with pytest.raises(ValueError, match="there is no packages/tensor-opps"):
        legs("tensor-opps")


def test_what_is_missing_is_named():
    assert missing("tensor-ops", []) == ["sdist", "py3-none-any"]
    assert missing("tensor-ops", ["tensor_ops-1.0.tar.gz", "tensor_ops-1.0-py3-none-any.whl"]) == []
    # Another package's files, whose name begins the same.
    assert missing("tensor-ops", ["tensor_ops_cpp-1.0.tar.gz"]) == ["sdist", "py3-none-any"]


@pytest.fixture
def one_leg(monkeypatch):
    identifiers = ("cp312-manylinux_x86_64", "cp314t-manylinux_x86_64", "cp311-musllinux_x86_64")
    leg = Leg("linux", "x86_64", "ubuntu-24.04", False, identifiers)
    may_fail = Leg("windows", "AMD64", "windows-2025", True, ("cp311-win_amd64",))
    monkeypatch.setattr(wheel_matrix, "legs", lambda package: [leg, may_fail])


@pytest.mark.usefixtures("one_leg")
def test_a_wheel_is_told_by_its_tags():
    manylinux = "manylinux_2_27_x86_64.manylinux_2_28_x86_64"
    files = [
        "x-1.0.tar.gz",
        f"x-1.0-cp312-abi3-{manylinux}.whl",
        f"x-1.0-cp314-cp314t-{manylinux}.whl",
        "x-1.0-cp311-cp311-musllinux_1_2_x86_64.whl",
    ]
    assert missing("x", files) == []
    others = [files[0], f"x-1.0-cp312-cp312-{manylinux}.whl", *files[2:]]
    assert missing("x", others) == ["cp312-manylinux_x86_64"]
    others = [*files[:2], f"x-1.0-cp314-cp314-{manylinux}.whl", files[3]]
    assert missing("x", others) == ["cp314t-manylinux_x86_64"]
    others = [*files[:3], "x-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"]
    assert missing("x", others) == ["cp311-musllinux_x86_64"]


def test_command_line(tmp_path: Path, capsys):
    assert wheel_matrix.main(["legs", "tensor-ops"]) == 0
    assert capsys.readouterr().out == "[]\n"
    (tmp_path / "tensor_ops-1.0.tar.gz").touch()
    assert wheel_matrix.main(["complete", "tensor-ops", str(tmp_path)]) == 1
    assert "has no py3-none-any of tensor-ops" in capsys.readouterr().err
