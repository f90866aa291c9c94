"""Choices when the C++ backend is compiled: options of CMake, and config.cmake."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest
from projects import NORMALISED, PACKAGE, QUICK, ROOT, build, configure, run

GUIDE = """\
# Enable multiple backends
set(USE_CUDA ON)
set(USE_CPU ON)
set(USE_MPS OFF)
set(USE_TRITON ON)
# ... other backends
"""
# Kernels that run on the CPU, since few machines have nvcc.
EMULATED = {"TENSOR_OPS_CUDA_EMULATION": "ON", "TENSOR_OPS_CUDA_OPS": "rms_norm"}
# A project of which tensor-ops is a part, with settings of its own.
SURROUNDING = """\
cmake_minimum_required(VERSION 3.21)
project(surrounding LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 14)
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
option(USE_CPU "Of this project" OFF)
set(USE_CUDA maybe)
set(version of-this-project)
set(names CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS CMAKE_CXX_STANDARD CMAKE_UNITY_BUILD
          CMAKE_CXX_VISIBILITY_PRESET CMAKE_POSITION_INDEPENDENT_CODE BUILD_SHARED_LIBS
          CMAKE_INSTALL_LIBDIR CMAKE_INTERPROCEDURAL_OPTIMIZATION USE_CPU USE_CUDA version)
foreach(name IN LISTS names)
  set(before_${name} "${${name}}")
endforeach()
get_directory_property(options_before COMPILE_OPTIONS)
add_subdirectory(@PACKAGE@ tensor_ops)
foreach(name IN LISTS names)
  if(NOT "${${name}}" STREQUAL "${before_${name}}")
    message(FATAL_ERROR "${name} was '${before_${name}}' and is '${${name}}'")
  endif()
endforeach()
get_directory_property(options COMPILE_OPTIONS)
if(NOT "${options}" STREQUAL "${options_before}")
  message(FATAL_ERROR "the compiler's options are ${options}")
endif()
foreach(target IN ITEMS tensor_ops::cpp tensor_ops::backend)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "there is no ${target}")
  endif()
endforeach()
get_target_property(mode tensor_ops_kernels_@LEVEL@ UNITY_BUILD_MODE)
get_target_property(mode_of_products tensor_ops_products_@LEVEL@ UNITY_BUILD_MODE)
get_target_property(optimized_as_one tensor_ops_kernels_@LEVEL@ INTERPROCEDURAL_OPTIMIZATION)
if(NOT mode STREQUAL "GROUP" OR NOT mode_of_products STREQUAL "GROUP" OR optimized_as_one)
  message(FATAL_ERROR "kernels are compiled together")
endif()
"""


@pytest.fixture
def lowest_level():
    cpp = pytest.importorskip("tensor_ops_cpp")
    return cpp.get_optimization_info()["compiled_levels"][0]


@pytest.fixture
def configured(tmp_path):
    """A function that configures the package, and returns what CMake says."""

    def done(config=None, status=0, **settings):
        if config is not None:
            tmp_path.joinpath("config.cmake").write_text(config, encoding="utf-8")
            settings["TENSOR_OPS_CONFIG_CMAKE"] = tmp_path / "config.cmake"
        return configure(PACKAGE, tmp_path / "build", settings, status=status)

    return done


def test_the_guides_file(configured, tmp_path):
    said = configured(GUIDE, **EMULATED)
    assert "tensor_ops_cuda has code for: " in said
    assert (tmp_path / "build/tensor_ops_cuda").is_dir()
    assert "USE_TRITON is ON, and there is nothing to compile for it here" in said
    assert "USE_MPS is" not in said


def test_a_file_that_turns_the_cpu_off(configured):
    said = configured("set(USE_CPU OFF)", status=1)
    assert "USE_CPU is 'OFF', and the CPU backend is all that tensor-ops-cpp is" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("set(USE_CUUDA ON)", "sets USE_CUUDA, which is unknown; did you mean USE_CUDA?"),
        ("set(USE_MKLDN ON)", "sets USE_MKLDN, which is unknown; did you mean USE_MKLDNN?"),
        ("set(TENSOR_OPS_LEVEL neon)", "which is unknown; did you mean TENSOR_OPS_LEVELS?"),
    ],
)
def test_names_that_nobody_knows(line, says, configured):
    assert says in configured(line, status=1)


@pytest.mark.parametrize(
    "name", ["USE_CPU", "USE_CUDA", "USE_TRITON", "TENSOR_OPS_DECODE", "TENSOR_OPS_ONE_LEVEL"]
)
def test_switches_are_on_or_off(name, configured, tmp_path):
    said = f"{name} is 'maybe'; set it to ON or OFF. Valid values: ON, OFF, TRUE, FALSE, YES, NO"
    assert said in configured(status=1, **{name: "maybe"})
    (tmp_path / "build/CMakeCache.txt").unlink()
    assert said in configured(f"set({name} maybe)", status=1)


def test_what_the_file_sets_is_said_and_goes_first(configured, lowest_level):
    said = configured(f"set(TENSOR_OPS_LEVELS {lowest_level})\nset(other_name 1)")
    assert f"config.cmake sets TENSOR_OPS_LEVELS to '{lowest_level}'" in said
    assert "goes before" not in said
    said = configured(TENSOR_OPS_LEVELS="nonsense")
    assert f"config.cmake sets TENSOR_OPS_LEVELS to '{lowest_level}', which goes before" in said
    assert "'nonsense' of the command line" in said


def test_a_file_that_is_not_there(configured, tmp_path):
    said = configured(TENSOR_OPS_CONFIG_CMAKE=tmp_path / "nowhere.cmake", status=1)
    assert "nowhere.cmake', where there is no file" in said


def test_levels_that_the_processor_has_not(configured, lowest_level):
    said = configured(TENSOR_OPS_LEVELS=f"{lowest_level} x86-64-v5", status=1)
    assert "'x86-64-v5' is not a level of" in said
    valid = said.partition("the valid ones are: ")[2].partition(";")[0]
    assert lowest_level in valid


def test_two_ways_to_say_the_levels(configured, lowest_level):
    said = configured(TENSOR_OPS_LEVELS=lowest_level, TENSOR_OPS_ONE_LEVEL="ON", status=1)
    assert "set one of them" in said


def test_the_levels_of_this_machine(configured, tmp_path):
    def compiled(asked):
        configured(TENSOR_OPS_LEVELS=asked)
        (database,) = tmp_path.glob("build/**/build.ninja")
        text = database.read_text(encoding="utf-8")
        found = re.findall(r"tensor_ops_kernels_(\w+)\.dir/native/ops/rope", text)
        return {level.replace("_", "-") for level in found}

    cpp = pytest.importorskip("tensor_ops_cpp")
    runnable = compiled("runnable")
    assert runnable >= {*cpp.get_optimization_info()["cpu_levels"]}
    assert compiled("native") == {max(runnable)}
    assert compiled("recent") == {*sorted(runnable)[-2:]}


def test_the_variants_of_this_machine(configured, tmp_path):
    def compiled(**settings):
        configured(**{"TENSOR_OPS_LEVELS": "runnable", **settings})
        (database,) = tmp_path.glob("build/**/build.ninja")
        text = database.read_text(encoding="utf-8")
        return {*re.findall(r"tensor_ops_products_(\w+)\.dir/native/decode/products", text)}

    cpp = pytest.importorskip("tensor_ops_cpp")
    levels = {x.replace("-", "_") for x in cpp.get_optimization_info()["cpu_levels"]}
    runnable, emulated = compiled(), compiled(TENSOR_OPS_EMULATE_DOTS="ON")
    assert levels <= runnable <= compiled(TENSOR_OPS_LEVELS="")
    assert emulated - runnable <= {"x86_64_v3_vnni"}
    assert ("x86_64_v3_vnni" in emulated) == ("x86_64_v3" in levels)


def test_a_compiler_cache(configured, tmp_path):
    def launched(**settings):
        configured(TENSOR_OPS_CCACHE="/a/cache", **settings)
        (database,) = tmp_path.glob("build/**/build.ninja")
        return "/a/cache " in database.read_text(encoding="utf-8")

    assert launched()
    assert not launched(CMAKE_CXX_COMPILER_LAUNCHER="env")


@pytest.mark.parametrize("separator", [";", ",", " "])
def test_levels_are_compiled_in_their_own_order(separator, configured, tmp_path):
    cpp = pytest.importorskip("tensor_ops_cpp")
    levels = cpp.get_optimization_info()["compiled_levels"]
    configured(TENSOR_OPS_LEVELS=separator.join(reversed(levels[1:] or levels)))
    (database,) = tmp_path.glob("build/**/build.ninja")
    text = database.read_text(encoding="utf-8")
    for level in levels:
        wanted = level in (levels[1:] or levels)
        assert (f"tensor_ops_kernels_{level.replace('-', '_')}" in text) is wanted
        assert (f"TENSOR_OPS_WITHOUT_{level.replace('-', '_')}" in text) is not wanted


def test_a_surrounding_project_keeps_its_settings(lowest_level, tmp_path):
    level = lowest_level.replace("-", "_")
    text = SURROUNDING.replace("@PACKAGE@", str(PACKAGE)).replace("@LEVEL@", level)
    tmp_path.joinpath("CMakeLists.txt").write_text(text, encoding="utf-8")
    said = configure(tmp_path, tmp_path / "build")
    assert "USE_" not in said


@pytest.mark.nightly
def test_both_backends_in_one_build(tmp_path):
    config = tmp_path / "config.cmake"
    config.write_text(GUIDE, encoding="utf-8")
    settings = {"TENSOR_OPS_SOURCE": PACKAGE, "TENSOR_OPS_CONFIG_CMAKE": config}
    configure(ROOT / "examples/cpp", tmp_path / "build", settings | EMULATED | QUICK)
    build(tmp_path / "build")
    for backend in ("cpp", "cuda"):
        said = run(tmp_path / "build/normalise", TENSOR_OPS_FORCE_BACKEND=backend)
        assert said == NORMALISED.replace("cpp", backend)


@pytest.mark.nightly
def test_the_guides_steps(tmp_path):
    """Edit config.cmake, install with pip, ask what was compiled."""
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("no scikit-build-core here")
    shutil.copytree(ROOT / "native", tmp_path / "native")
    shutil.copytree(PACKAGE, tmp_path / "packages/tensor-ops-cpp")
    config = GUIDE + "set(TENSOR_OPS_ONE_LEVEL ON)\nset(TENSOR_OPS_DECODE OFF)\n"
    config_file = tmp_path / "packages/tensor-ops-cpp/config.cmake"
    config_file.write_text(config, encoding="utf-8")
    site = tmp_path / "site"
    words = ["install", "-v", "--no-deps", "--no-build-isolation", "--target", str(site)]
    words += ["-C", "cmake.build-type=Debug", str(tmp_path / "packages/tensor-ops-cpp")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "USE_TRITON is ON, and there is nothing to compile for it here" in said
    assert "USE_CUDA is ON, and the CUDA backend is a package of its own" in said
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "import tensor_ops, tensor_ops_cpp\n"
        "print(tensor_ops_cpp.__file__, tensor_ops_cpp.configuration(), sep='\\n')\n"
        "print('cpp' in tensor_ops.get_available_backends(runs_programs=False))\n"
        "print(tensor_ops_cpp.get_optimization_info()['decode'])\n"
        "print(tensor_ops_cpp.supports_program('{}'))\n"
    )
    lines = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert lines[0].startswith(str(site))
    assert lines[1].endswith("decode=off")
    assert "," not in lines[1]
    assert lines[2:4] == ["True", "False"]
    assert lines[4].startswith("tensor_ops_cpp was built without decode programs")
    (bill,) = site.glob("tensor_ops_cpp-*.dist-info/sboms/*.json")
    component = json.loads(bill.read_text(encoding="utf-8"))["metadata"]["component"]
    configuration = [f"{each['name']}={each['value']}" for each in component["properties"]]
    assert " ".join(configuration) == lines[1].replace("levels", "tensor-ops:levels").replace(
        "decode", "tensor-ops:decode"
    )
