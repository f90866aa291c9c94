"""No code and no configuration comes from the current directory."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tensor_ops

# Files that somebody may have put into a folder that a user goes to: modules tensor_ops imports,
# a distribution that registers a backend, a configuration, a program that `doctor` asks.
MODULES = ("numpy", "ml_dtypes", "json", "tensor_ops", "tensor_ops_cpp", "planted", "_native")
CODE = "raise SystemExit('code of the current directory ran')\n"
COMMANDS = (["doctor"], ["info", "cpp"], ["explain", "silu"], ["configure_backend", "--show"])


@pytest.fixture
def planted(tmp_path):
    folder = tmp_path / "planted"
    distribution = folder / "planted-1.0.dist-info"
    distribution.mkdir(parents=True)
    for name in MODULES:
        (folder / f"{name}.py").write_text(CODE)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text("[tensor_ops.backends]\nplanted = planted\n")
    for configuration in (folder, folder / ".config/tensor-ops", folder / "etc/tensor-ops"):
        configuration.mkdir(parents=True, exist_ok=True)
        (configuration / "backend.json").write_text("not even JSON")
    for name in ("nvcc", "nvidia-smi", "c++"):
        program = folder / name
        program.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
        program.chmod(0o755)
    return folder


def run(folder, *command, **variables):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TENSOR_OPS_")}
    return subprocess.run(
        command,
        cwd=folder,
        env=environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_command_takes_nothing_from_the_current_directory(planted, arguments):
    command = shutil.which("tensor-ops", path=sysconfig.get_path("scripts"))
    if command is None:
        pytest.skip("the command is not installed here")
    # A search path that holds the current directory is what Windows has without being asked.
    done = run(planted, command, *arguments, PATH=f".{os.pathsep}{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "planted" not in done.stdout.replace(str(planted), "")
    assert not (planted / "ran").exists()


@pytest.mark.parametrize("option", ["-P", "-I"])
def test_module_takes_nothing_from_the_current_directory_where_python_does_not(planted, option):
    if option == "-I" and "PYTHONPATH" in os.environ:
        pytest.skip("the packages are on PYTHONPATH, which -I ignores")
    done = run(planted, sys.executable, option, "-m", "tensor_ops", "configure_backend", "--show")
    assert (done.returncode, done.stderr) == (0, ""), done


def test_native_library_is_the_package_s_own():
    cpp = pytest.importorskip("tensor_ops_cpp")
    library = Path(cpp._native.__file__)
    assert library.is_absolute()
    assert library.parent in map(Path, cpp.__path__)


@pytest.mark.skipif(sys.platform != "linux", reason="ELF")
def test_native_code_is_searched_for_beside_the_module_alone():
    cpp = pytest.importorskip("tensor_ops_cpp")
    readelf = shutil.which("readelf") or pytest.skip("no readelf here")
    module = Path(cpp._native.__file__)
    for path, searched in ((module, ["$ORIGIN"]), (module.with_name("libtensor_ops_cpp.so"), [])):
        command = [readelf, "--dynamic", "--wide", path]
        dynamic = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic) == searched
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        assert needed
        assert all("/" not in name for name in needed), needed


def test_package_itself_has_no_library():
    folder = Path(tensor_ops.__file__).parent
    assert not [path for path in folder.rglob("*") if path.suffix in {".so", ".pyd", ".dll"}]
