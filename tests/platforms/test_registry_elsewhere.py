"""The registry of C++ programs on another system: its files, variables and faults."""

import shutil
from pathlib import Path

import pytest

ONE = "0.731059"  # silu(1)
# A folder whose name no system may take apart or write in other letters.
NAME = "Ordner für Müllers Ähren"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def ask(system, program, home):
    """A function that has a program ask the registry, and returns its lines."""
    home.mkdir()

    def asked(*questions, **variables):
        text = "".join(f"{each}\n" for each in questions)
        lines = system.run(program("ask_registry"), text=text, HOME=str(home), **variables)
        return [*lines.stdout.splitlines(), *lines.stderr.splitlines()]

    return asked


@pytest.fixture
def folder(system, tmp_path):
    """A folder with the library of the C++ backend."""
    made = tmp_path / NAME / "tensor_ops_cpp"
    made.mkdir(parents=True)
    library = Path(system.library)
    for path in [library, *library.parent.glob("*.dll")]:
        shutil.copy(path, made / path.name)
    return made


@pytest.fixture
def fake(system, tmp_path):
    """A function that compiles the fake backend of tests/cpp_api into a folder."""
    source = Path(__file__).parents[1] / "cpp_api/programs/fake_backend.c"

    def compiled(where, name, **macros):
        defined = [
            f"-DFAKE_NAME={name}",
            "-DTENSOR_OPS_BUILDS_LIBRARY",
            *(f"-DFAKE_{key}={macros[key]}" for key in macros),
        ]
        quiet = ["-Wno-unused-const-variable", "-fPIC", "-shared"]
        where.mkdir(exist_ok=True)
        return system.compile(source, where / system.library_name(name), *quiet, *defined)

    return compiled


def test_headers_go_with_those_of_the_system(system, tmp_path):
    """Windows' own define macros of common words, such as `near` and `small`."""
    headers = Path(__file__).parents[2] / "native/include"
    names = sorted(path.relative_to(headers).as_posix() for path in headers.rglob("*.h"))
    first = "windows.h" if system.is_windows else "unistd.h"
    source = tmp_path / "all_headers.cpp"
    lines = "".join(f"#include <{name}>\n" for name in [first, *names])
    source.write_text(lines, encoding="utf-8")
    system.compile(source, tmp_path / "all_headers.o", "-DNOMINMAX", "-c")


def listed(system, *folders):
    """Return the folders as a variable has them."""
    return (";" if system.is_windows else ":").join(map(system.path, folders))


def test_the_library_is_found_by_its_name_and_computes(ask, system, folder):
    where = {"TENSOR_OPS_BACKEND_PATH": listed(system, folder)}
    get, computed, library, names, default = ask(
        "get cpp", "silu cpp", "library cpp", "available", "default", **where
    )
    assert (get, computed) == ("cpp available", ONE)
    assert library.replace("/", "\\") == system.path(folder / system.library_name("cpp")).replace(
        "/", "\\"
    )
    assert (names, default) == ("cpp", "cpp available")


def test_it_is_found_beside_the_program(ask, system, program, folder, tmp_path):
    moved = Path(shutil.copy(program("ask_registry"), folder))
    text = "get cpp\nsilu cpp\n"
    assert system.run(moved, text=text).stdout.splitlines() == ["cpp available", ONE]


@pytest.mark.parametrize("end", ["", "/", "\\"])
def test_folders_may_end_with_a_slash_and_be_several(ask, system, folder, tmp_path, end):
    if end == "\\" and not system.is_windows:
        pytest.skip("a backslash is a letter of a name there")
    where = listed(system, tmp_path / "no such folder", folder) + end
    assert ask("silu cpp", TENSOR_OPS_BACKEND_PATH=where) == [ONE]


def test_a_python_environment_is_searched(ask, system, folder, tmp_path):
    place = "Lib/site-packages" if system.is_windows else "lib/python3.12/site-packages"
    site = tmp_path / NAME / place
    site.mkdir(parents=True)
    folder.rename(site / "tensor_ops_cpp")
    prefix = system.path(tmp_path / NAME)
    assert ask("get cpp", f"search {prefix}", "silu cpp") == ["null", "searched", ONE]


def test_a_relative_folder_is_an_error(ask):
    (line,) = ask("get cpp", TENSOR_OPS_BACKEND_PATH="here")
    assert line.startswith("ConfigError: TENSOR_OPS_BACKEND_PATH names the folder 'here', which is")


def test_a_library_that_is_not_there_is_said_with_its_name(ask, system, folder):
    get, why = ask("get cuda", "reason cuda", TENSOR_OPS_BACKEND_PATH=listed(system, folder))
    assert get == "null"
    assert why.startswith(f"not found: no {system.library_name('cuda')} in {system.path(folder)}")


BROKEN = {
    "another version": ({"ABI": "99u"}, "it has version 99 of the interface, and this program"),
    "an older version": ({"ABI": "0u"}, "this library has version 0 of the interface"),
    "no entry point": ({"NO_ENTRY": ""}, "has no function tensor_ops_cuda_backend"),
    "another backend": ({"SAYS": '"cpp"'}, "it provides the backend 'cpp'"),
}


@pytest.mark.parametrize("what", [*BROKEN, "no library", "a folder"])
def test_a_broken_library_disables_its_backend_and_no_other(ask, system, fake, folder, what):
    path = folder.parent / "others" / system.library_name("cuda")
    path.parent.mkdir()
    words = f"loading {system.path(path.parent)}"
    if what in BROKEN:
        macros, words = BROKEN[what]
        fake(path.parent, "cuda", **macros)
    elif what == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"no library")
    where = {"TENSOR_OPS_BACKEND_PATH": listed(system, folder, path.parent)}
    get, reason, default, *warnings = ask("get cuda", "reason cuda", "default", **where)
    assert get == "cuda unavailable"
    assert words in reason
    assert default == "cpp available"
    (warning,) = warnings
    assert "backend 'cuda' is installed but cannot be used" in warning


def test_a_backend_that_works_is_found_beside_it(ask, system, fake, folder):
    """Packages of one environment are side by side."""
    fake(folder.parent / "tensor_ops_cuda", "cuda", DEVICE_KIND="TENSOR_OPS_CUDA")
    where = {"TENSOR_OPS_BACKEND_PATH": listed(system, folder)}
    assert ask("get cuda", "available", **where) == ["cuda available", "cuda cpp"]


def test_the_file_is_looked_for_where_python_looks(ask, system, folder, fake, home, tmp_path):
    fake(folder.parent / "tensor_ops_cuda", "cuda", DEVICE_KIND="TENSOR_OPS_CUDA")
    where = {"TENSOR_OPS_BACKEND_PATH": listed(system, folder)}
    assert ask("default", **where) == ["cuda available"]
    own = system.settings(home) / "tensor-ops"
    named = tmp_path / NAME / "named by a variable.json"
    for file, variables in {
        own / "backend.json": {},
        named: {"TENSOR_OPS_CONFIG": system.path(named)},
    }.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"force_backend": "cpp"}', encoding="utf-8")
        assert ask("default", **where, **variables) == ["cpp available"]
        file.write_text('{"force_backend": ', encoding="utf-8")
        (line,) = ask("default", **where, **variables)
        assert line.startswith("ConfigError: ")
        assert f"{file.name}:1: is not valid JSON" in line
        file.unlink()


def test_what_is_no_file_in_the_place_of_one_is_an_error(ask, system, tmp_path):
    missing = system.path(tmp_path / NAME / "nichts.json")
    (line,) = ask("default", TENSOR_OPS_CONFIG=missing)
    assert line.startswith(f"ConfigError: TENSOR_OPS_CONFIG names {missing!r}, which is not a file")
    (tmp_path / NAME).mkdir()
    place = system.path(tmp_path / NAME)
    (line,) = ask("default", TENSOR_OPS_CONFIG=place)
    assert line.startswith(f"ConfigError: TENSOR_OPS_CONFIG names {place!r}, {place}: is a folder")


def test_variables_force_and_prefer(ask, system, folder):
    where = {"TENSOR_OPS_BACKEND_PATH": listed(system, folder)}
    (line,) = ask("default", TENSOR_OPS_FORCE_BACKEND="cuda", **where)
    assert line.startswith(
        "UnavailableError: backend 'cuda' (forced by TENSOR_OPS_FORCE_BACKEND) is unavailable: not "
    )
    line, warning = ask("default", TENSOR_OPS_BACKEND="cuda", **where)
    assert line == "cpp available"
    assert "backend 'cuda', preferred by TENSOR_OPS_BACKEND, is unavailable" in warning
    (line,) = ask("default", TENSOR_OPS_BACKEND="cudda", **where)
    assert line.startswith("ConfigError: ")
    assert "unknown backend 'cudda'; did you mean 'cuda'?" in line
