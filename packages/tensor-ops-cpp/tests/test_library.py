"""Symbols that the library and the extension module export, and libraries that they load.

That no code of a level can run on a lesser CPU is checked by the build: native/check_kernels.cmake.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tensor_ops_cpp
from tensor_ops_cpp import _native

LIBRARY = Path(_native.__file__).with_name("libtensor_ops_cpp.so")

pytestmark = [
    pytest.mark.unsanitized(reason="a build with sanitizers links and exports more"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads binaries of Linux"),
]
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf here")


def exported(path):
    command = ["nm", "-D", "--defined-only", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def dynamic_section(path):
    command = ["readelf", "-d", path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here")
def test_exports():
    """The library exports one function, and under its release what the module beside it uses."""
    assert exported(_native.__file__) == {"PyInit__native"}
    release = f"TENSOR_OPS_CPP_{tensor_ops_cpp.__version__}"
    own = {name for name in exported(LIBRARY) if not name.endswith(f"@@{release}")}
    assert own == {"tensor_ops_cpp_backend@@TENSOR_OPS_1", "TENSOR_OPS_1", release}
    private = exported(LIBRARY) - own
    assert all(re.match(r"_Z(T[ISV])?NK?10tensor_ops", name) for name in private)


@needs_readelf
def test_module_loads_the_library_beside_it():
    """RPATH goes before LD_LIBRARY_PATH, where another release may lie."""
    section = dynamic_section(_native.__file__)
    assert "Shared library: [libtensor_ops_cpp.so]" in section
    assert "(RPATH)" in section
    assert "[$ORIGIN]" in section


@needs_readelf
def test_library_is_never_unloaded():
    assert "NODELETE" in dynamic_section(LIBRARY)


@needs_readelf
@pytest.mark.parametrize("path", [_native.__file__, LIBRARY], ids=["module", "library"])
def test_brings_no_openmp_runtime(path):
    """Whatever runtime torch or NumPy's BLAS bring stays the only one in the process."""
    assert "omp" not in dynamic_section(path).lower()
    assert tensor_ops_cpp.has_openmp is False


@needs_readelf
def test_library_needs_no_python():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(LIBRARY))
    assert needed
    assert not [name for name in needed if "python" in name]


def test_library_of_another_release_is_refused(tmp_path):
    """The dynamic linker says which release the module wanted."""
    package = tmp_path / "tensor_ops_cpp"
    shutil.copytree(Path(_native.__file__).parent, package)
    library = package / LIBRARY.name
    release = f"TENSOR_OPS_CPP_{tensor_ops_cpp.__version__}".encode()
    other = release[:-1] + b"9"
    module = Path(package, Path(_native.__file__).name)
    # The module asks for another release by name; its hash is wrong as well.
    module.write_bytes(module.read_bytes().replace(release, other))
    assert library.exists()
    done = subprocess.run(
        [sys.executable, "-c", "import tensor_ops_cpp"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert f"version `{other.decode()}' not found" in done.stderr
