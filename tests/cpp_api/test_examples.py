"""The examples in C++, C and Rust, built with an installed package, an install tree and as one."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cpp_programs import COMPILERS, run_compiler
from projects import (
    EXAMPLES,
    NORMALISED,
    PACKAGE,
    QUICK,
    ROOT,
    SOFTMAX,
    build,
    configure,
    run,
    run_examples,
)

import tensor_ops_cpp

CPP = EXAMPLES / "cpp"
STRICT = {"CMAKE_CXX_FLAGS": "-Wall -Wextra -Werror", "CMAKE_C_FLAGS": "-Wall -Wextra -Werror"}
# Packages that a machine without Python has not, as far as CMake can see.
NO_PYTHON = {f"CMAKE_DISABLE_FIND_PACKAGE_{name}": "ON" for name in ("Python", "nanobind")}
# All that is compiled by default, as it is shipped.
FULL = {"TENSOR_OPS_WERROR": "ON"}
OPENS_A_MODEL = """
#include <tensor_ops/abi.h>
#include <tensor_ops/backend/decoder.h>

#include <iostream>

int main() {
  const tensor_ops_backend* backend = nullptr;
  tensor_ops_cpp_backend(TENSOR_OPS_ABI_VERSION, &backend, nullptr);
  try {
    tensor_ops::backend::Decoder decoder(backend, "nowhere");
  } catch (const tensor_ops::backend::Error& error) {
    std::cout << error.what() << '\\n';
  }
}
"""


def folder_of(option):
    command = [sys.executable, "-m", "tensor_ops_cpp", option]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Path(done.stdout.removesuffix("\n"))


@pytest.fixture(scope="module", params=[QUICK, FULL], ids=["quick", "full"])
def from_source(request, tmp_path_factory):
    """The examples and tensor-ops in one build, and the prefix to which that was installed."""
    folder = tmp_path_factory.mktemp("from source")
    settings = {"TENSOR_OPS_SOURCE": PACKAGE, "TENSOR_OPS_INSTALL": "ON", **NO_PYTHON}
    settings |= request.param
    configure(CPP, folder / "build", settings)
    build(folder / "build")
    run("cmake", "--install", folder / "build", "--prefix", folder / "first")
    (folder / "first").rename(folder / "prefix")
    return folder


@pytest.mark.parametrize("compiler", COMPILERS)
def test_installed_package_with_cmake(compiler, tmp_path):
    """Nothing in its files says where they were installed; a space in the path is no harm."""
    moved = tmp_path / "else where/tensor_ops_cpp"
    shutil.copytree(folder_of("--libdir"), moved)
    folder = moved / folder_of("--cmakedir").relative_to(folder_of("--libdir"))
    configure(CPP, tmp_path / "build", {"tensor_ops_DIR": folder, **STRICT}, compiler)
    build(tmp_path / "build")
    assert tensor_ops_cpp.configuration() in run_examples(tmp_path / "build")
    said = run("ldd", tmp_path / "build/list_ops")
    assert f"libtensor_ops_cpp.so => {moved}/libtensor_ops_cpp.so" in said


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config here")
def test_installed_package_with_pkg_config(tmp_path):
    paths = {"PKG_CONFIG_PATH": str(folder_of("--pkgconfigdir"))}

    def asked(*words):
        return run("pkg-config", *words, **paths).split()

    assert asked("--modversion", "tensor-ops") == [tensor_ops_cpp.__version__]
    (libraries,) = asked("--variable=libdir", "tensor-ops-cpp")
    source, program = str(CPP / "normalise.cpp"), tmp_path / "normalise"
    words = ["-std=c++17", source, "-o", str(program), *asked("--cflags", "--libs", "tensor-ops")]
    run_compiler(COMPILERS[0], *words, f'-DTENSOR_OPS_BACKEND_FOLDERS="{libraries}"')
    assert run(program, HOME=str(tmp_path)) == NORMALISED
    source, program = str(CPP / "list_ops.c"), tmp_path / "list_ops"
    words = [source, "-o", str(program), *asked("--cflags", "--libs", "tensor-ops-cpp")]
    run_compiler("cc", *words, f"-Wl,-rpath,{libraries}")
    assert run(program).endswith(SOFTMAX)


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config here")
@pytest.mark.nightly
def test_the_guides_commands_with_pkg_config(tmp_path):
    """Its programs run with nothing in the environment that says where the libraries are."""
    page = (ROOT / "docs/guides/cpp_api.md").read_text(encoding="utf-8")
    for name, code in re.findall(r"<!-- file: (\S+\.cp*) -->\n```\w+\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(code, encoding="utf-8")
    (commands,) = re.findall(r"```bash\n([^`]*pkgconfigdir[^`]*)```", page)
    folder = str(Path(sys.executable).parent)
    path = {"PATH": os.pathsep.join([folder, os.environ["PATH"]])}
    run("bash", "-e", "-c", f"cd {shlex.quote(str(tmp_path))}\n{commands}", **path)
    assert run(tmp_path / "first", HOME=str(tmp_path)).startswith("Backend: cpp\n")
    assert run(tmp_path / "softmax") == "0.090031 0.244728 0.665241\n"


@pytest.mark.nightly
def test_one_build_with_tensor_ops(from_source):
    configuration = run_examples(from_source / "build").splitlines()[0]
    if not from_source.joinpath("build/CMakeCache.txt").read_text().count("ONE_LEVEL:BOOL=ON"):
        assert configuration.endswith(tensor_ops_cpp.configuration())


@pytest.mark.nightly
def test_install_tree_that_was_moved(from_source, tmp_path):
    settings = {"CMAKE_PREFIX_PATH": from_source / "prefix", **STRICT}
    configure(CPP, tmp_path, settings, COMPILERS[-1])
    build(tmp_path)
    run_examples(tmp_path)


@pytest.mark.nightly
def test_install_tree_has_what_a_package_has(from_source):
    """And no Python; its library exports the C interface alone."""
    prefix = from_source / "prefix"
    headers = [
        {path.relative_to(folder) for path in folder.rglob("*.h")}
        for folder in (prefix / "include", folder_of("--includedir"))
    ]
    assert headers[0] == headers[1] >= {Path("tensor_ops/abi.h"), Path("tensor_ops/backend/ops.h")}
    others = {path.name for path in prefix.rglob("*") if path.is_file() and path.suffix != ".h"}
    (library,) = prefix.rglob("libtensor_ops_cpp.so")
    assert others - {path.name for path in folder_of("--cmakedir").iterdir()} == {
        *("libtensor_ops_cpp.so", "tensor-ops.pc", "tensor-ops-cpp.pc"),
        *(path.name for path in prefix.rglob("tensor_opsTargets-*.cmake")),
    }
    symbols = run("nm", "-D", library)
    assert not [line for line in symbols.splitlines() if " _Py" in line or " Py" in line]
    exported = [line.split() for line in run("nm", "-D", "--defined-only", library).splitlines()]
    assert [words[-1] for words in exported if words[-2] != "A"] == [
        "tensor_ops_cpp_backend@@TENSOR_OPS_1"
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("from_source", [QUICK], indirect=True, ids=["quick"])
def test_a_library_without_decode_programs_says_so(from_source, tmp_path):
    prefix, source, program = from_source / "prefix", tmp_path / "open.cpp", tmp_path / "open"
    source.write_text(OPENS_A_MODEL, encoding="utf-8")
    (library,) = prefix.rglob("libtensor_ops_cpp.so")
    words = ["-std=c++17", f"-I{prefix}/include", str(source), str(library), "-o", str(program)]
    run_compiler(COMPILERS[0], *words, f"-Wl,-rpath,{library.parent}")
    assert run(program) == (
        f"backend 'cpp' runs no models (levels={lowest_level()} decode=off); the backend 'cpp' "
        "does unless it was built with TENSOR_OPS_DECODE=OFF\n"
    )


def lowest_level():
    return tensor_ops_cpp.get_optimization_info()["compiled_levels"][0]


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("find_package(tensor_ops 9.0 CONFIG REQUIRED)", 'compatible with requested version "9.0"'),
        (
            "find_package(tensor_ops CONFIG REQUIRED COMPONENTS backend gpu)",
            "tensor_ops has no component gpu; it has: backend, cpp",
        ),
    ],
)
def test_package_that_is_not_what_was_wanted(wanted, says, tmp_path):
    text = f"cmake_minimum_required(VERSION 3.21)\nproject(wants LANGUAGES CXX)\n{wanted}\n"
    tmp_path.joinpath("CMakeLists.txt").write_text(text, encoding="utf-8")
    settings = {"tensor_ops_DIR": folder_of("--cmakedir")}
    assert says in configure(tmp_path, tmp_path / "build", settings, status=1)


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no rustc here")
def test_rust(tmp_path):
    libraries = folder_of("--libdir")
    words = ["-D", "warnings", "-L", libraries, "-C", f"link-arg=-Wl,-rpath,{libraries}"]
    run("rustc", *words, "-o", tmp_path / "silu", EXAMPLES / "rust/silu.rs")
    expected = "silu of [-1.0, 0.0, 1.0] is [-0.26894143, 0.0, 0.7310586]\n"
    assert run(tmp_path / "silu") == expected


def test_folders_are_printed():
    for option, name in {
        "--cmakedir": "tensor_opsConfig.cmake",
        "--includedir": "tensor_ops/backend/backends.h",
        "--libdir": "libtensor_ops_cpp.so",
        "--pkgconfigdir": "tensor-ops.pc",
    }.items():
        assert (folder_of(option) / name).is_file()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give at least one of --cmakedir, --includedir, --libdir, --pkgconfigdir"),
        (["--cmake"], "unrecognized arguments: --cmake"),
        (["--cmakedir", "here"], "unrecognized arguments: here"),
    ],
)
def test_wrong_words_are_errors(words, says):
    command = [sys.executable, "-m", "tensor_ops_cpp", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
