"""Drivers that a package of PyPI puts into the Python environment, beside those of the system."""

import os
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tensor_ops_opencl import drivers

COMMAND = "pip install intel-opencl-rt intel-cmplr-lib-rt"
# PoCL is in the folder of pyopencl, where its loader looks too.
WITHOUT_POCL = "import os, pyopencl; os.environ['PYOPENCL_HOME'] = os.devnull\n"
REASON = "import tensor_ops_opencl as t; print(t.probe()['reason'])"
PLATFORMS = (
    "import tensor_ops_opencl as t\n"
    "print([platform['name'] for platform in t.get_opencl_info()['platforms']])\n"
)
PLATFORMS_FOR_CPUS = {"['Portable Computing Language']", "['Intel(R) OpenCL']"}


@pytest.fixture(autouse=True)
def no_choice_of_drivers(monkeypatch):
    """The tests set what they need, whatever the run was given."""
    for name in ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("TENSOR_OPS_OPENCL_DEVICE", raising=False)


@pytest.fixture
def intel():
    """The library of an intel-opencl-rt that is really installed."""
    try:
        distribution("intel-opencl-rt")
    except PackageNotFoundError:
        pytest.skip("intel-opencl-rt is not installed")
    return drivers.installed()


@pytest.fixture
def pocl():
    """The library of PoCL in the folder of pyopencl."""
    return _pocl() or pytest.skip("pocl-binary-distribution is not installed")


@pytest.fixture
def library():
    """The library of any driver that works, to stand in for Intel's in a package."""
    found = _pocl() or drivers.installed()
    return found or pytest.skip("no driver of PyPI is installed")


def _pocl():
    import pyopencl

    found = Path(pyopencl.__file__).parent.glob(".libs/libpocl*.so*")
    return next((path.resolve() for path in found), None)


def test_the_library_of_the_package_is_found(python, intel_package, library):
    variables = intel_package(library)
    printed = python(WITHOUT_POCL + PLATFORMS, **variables)
    assert printed.strip() in PLATFORMS_FOR_CPUS


def test_a_call_runs_on_intels_driver_without_any_setting(python, intel):
    code = (
        f"{WITHOUT_POCL}import numpy as np, tensor_ops_opencl as t\n"
        "for dtype in (np.float32, np.float16, np.float64):\n"
        "    print(f'{t.silu(np.ones(3, dtype))[0]:.2f}', t.info()['device_name'])\n"
    )
    for line in python(code).splitlines():
        assert line.startswith("0.73 ")
        assert line.endswith("(Intel(R) OpenCL)")


def test_a_call_runs_on_intels_driver_where_pocl_is_too_old(python, intel, pocl):
    code = (
        "from tensor_ops_opencl import compiler\n"
        "ask = compiler.first_error\n"
        "too_old = lambda handle: 'error: unknown target CPU' if handle.name[:7] == 'pthread' "
        "else ask(handle)\n"
        "compiler.first_error = too_old\n"
        "import numpy as np, tensor_ops_opencl as t\n"
        "print(t.silu(np.ones(3, np.float32))[0] > 0.7, t.info()['device_name'])\n"
        "print(t.info()['device_count'], len(t.devices()))\n"
    )
    call, counts = python(code).splitlines()
    assert call.startswith("True ")
    assert call.endswith("(Intel(R) OpenCL)")
    count, found = map(int, counts.split())
    assert count == found - 1


def test_pocl_stays_visible_and_the_environment_as_it_was(python, intel, pocl):
    code = (
        "import os, pyopencl\nbefore = dict(os.environ)\n"
        f"{PLATFORMS}print(dict(os.environ) == before, os.path.exists(os.environ['PYOPENCL_HOME']))"
    )
    platforms, environment = python(code).splitlines()
    assert "'Intel(R) OpenCL'" in platforms
    assert "'Portable Computing Language'" in platforms
    assert environment == "True True"


def test_no_folder_is_left_behind(python, intel_package, library, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    python(REASON, **intel_package(library), TMPDIR=str(temporary))
    assert not [path for path in temporary.iterdir() if "tensor_ops" in path.name]


def test_a_choice_of_drivers_is_kept(python, intel_package, library, tmp_path):
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    variables = intel_package(library) | {"OCL_ICD_VENDORS": f"{chosen}/"}
    reason = python(WITHOUT_POCL + REASON, **variables)
    assert "no OpenCL platform was found" in reason
    assert (
        f"{library} is installed, and OCL_ICD_VENDORS leaves it out: unset OCL_ICD_VENDORS"
        in reason
    )


def test_the_drivers_of_that_choice_are_used(python, intel_package, library, tmp_path):
    (tmp_path / "mine.icd").write_text(f"{library}\n")
    variables = intel_package(shutil.which("true")) | {"OCL_ICD_VENDORS": f"{tmp_path}/"}
    printed = python(WITHOUT_POCL + PLATFORMS, **variables)
    assert printed.strip() in PLATFORMS_FOR_CPUS


def test_a_library_that_does_not_load_is_named(python, intel_package, tmp_path):
    library = tmp_path / "text"
    library.write_text("no library\n")
    variables = intel_package(library)
    reason = python(WITHOUT_POCL + REASON, **variables)
    assert f"drivers that do not load: {library.name}: " in reason
    assert f"{library} does not load (" in reason
    assert reason.rstrip().endswith(COMMAND)


def test_a_loader_that_was_asked_before_is_named(python, intel_package, library):
    ask = "try:\n    pyopencl.get_platforms()\nexcept pyopencl.Error:\n    pass\n"
    reason = python(WITHOUT_POCL + ask + REASON, **intel_package(library))
    assert f"{library} is installed, and OpenCL was used without it" in reason
    assert f"OCL_ICD_VENDORS={library}" in reason


def test_the_setting_that_a_message_gives_works(python, intel_package, library):
    printed = python(WITHOUT_POCL + PLATFORMS, **intel_package(), OCL_ICD_VENDORS=str(library))
    assert printed.strip() in PLATFORMS_FOR_CPUS


@pytest.mark.parametrize("write", ["tempfile.TemporaryDirectory", "pathlib.Path.write_text"])
def test_nothing_can_be_written(python, intel_package, pocl, write):
    """Another driver, such as that of a GPU, is found all the same."""
    code = (
        "import pathlib, tempfile\n"
        "def refuse(*args, **kwargs): raise OSError('nothing can be written')\n"
        f"{write} = refuse\n"
    )
    assert "Portable" in python(code + PLATFORMS, **intel_package(shutil.which("true")))


@pytest.mark.parametrize(("has_wheels", "command"), [(True, COMMAND), (False, "pyopencl[pocl]")])
def test_a_command_for_every_processor(monkeypatch, has_wheels, command):
    monkeypatch.setattr(drivers, "installed", lambda: None)
    monkeypatch.setattr(drivers, "HAS_WHEELS_OF_INTEL", has_wheels)
    assert command in drivers.for_cpu()


@pytest.mark.parametrize("named", [[], ["C:/others.dll"]])
def test_on_windows_the_loader_is_given_the_library(monkeypatch, tmp_path, named):
    library = tmp_path / "intelocl64.dll"
    library.touch()
    before = os.pathsep.join(named)
    monkeypatch.setenv("OCL_ICD_FILENAMES", before)
    monkeypatch.setattr(drivers, "installed", lambda: library)
    monkeypatch.setattr("sys.platform", "win32")
    with drivers.registered():
        assert os.environ["OCL_ICD_FILENAMES"] == os.pathsep.join([*named, str(library)])
    assert os.environ["OCL_ICD_FILENAMES"] == before
