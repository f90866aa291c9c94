"""Where the files are with which C++ programs are built."""

from pathlib import Path

from tensor_ops_cpp import _native

__all__ = ["get_cmake_dir", "get_include", "get_library_dir", "get_pkgconfig_dir"]

# The library, headers and CMake files are beside the extension module, which in an editable
# install is not where the Python files are.
_FOLDER = Path(_native.__file__).parent


def get_cmake_dir() -> str:
    """Return the folder of ``tensor_opsConfig.cmake``, for ``-Dtensor_ops_DIR=`` of CMake."""
    return str(_FOLDER / "cmake")


def get_include() -> str:
    """Return the folder of the headers, such as ``tensor_ops/backend/backends.h``."""
    return str(_FOLDER / "include")


def get_library_dir() -> str:
    """Return the folder of the shared library, ``libtensor_ops_cpp``."""
    return str(_FOLDER)


def get_pkgconfig_dir() -> str:
    """Return the folder of ``tensor-ops.pc``, for ``PKG_CONFIG_PATH``."""
    return str(_FOLDER / "pkgconfig")
