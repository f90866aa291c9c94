"""The registry: what is found where, what is said of what is not."""

import pytest

NO_VERSION = "99u"


def test_names_and_aliases_find_the_backend(ask, fake, libraries):
    fake(libraries)
    names = ["cpp", "cpu", "openmp", "cpp:cpu", "cpu:cpu"]
    assert ask(*(f"get={name}" for name in names)) == ["cpp 1.2.3 available"] * len(names)
    assert ask("type=cpu", "reason=cpu", "own_reason=cpp", "library=cpp") == [
        "cpp",
        "",
        "",
        str(libraries / "libtensor_ops_cpp.so"),
    ]


def test_what_a_backend_tells_of_itself(ask, fake, libraries):
    fake(libraries)
    assert ask("device=cpp", "configuration=cpp", "threads=2", "threads=0") == [
        "fake device 1:0 units 4 memory 1048576",
        "levels=none decode=off",
        "2",
        "ValueError: threads must be at least 1, got 0",
    ]


def test_known_names_that_are_not_there_are_null_and_say_why(ask, fake, libraries):
    fake(libraries)
    for name, reason in {
        "cuda": f"not found: no libtensor_ops_cuda.so in {libraries}, ",
        "opencl": "it runs in Python alone: tensor-ops-opencl has no library for C++ programs",
        "python": "it runs in Python alone, with NumPy",
        "numpy": "it runs in Python alone, with NumPy",
        "mps": "no backend of its own; Apple GPUs are reached through PyTorch",
        "triton": "no backend of its own; NVIDIA GPUs are served by the cuda backend: use 'cuda'",
        "cpp:gpu": "its device is cpu, not gpu",
        "opencl:gpu": "it runs in Python alone",
    }.items():
        get, why = ask(f"get={name}", f"reason={name}")
        assert get == "null"
        assert why.startswith(reason)


def test_what_is_no_name_of_a_backend_is_an_error(ask, fake, libraries):
    fake(libraries)
    known = "Known backends: cpp, cpu, cuda, cudnn, mkl"
    for name, words in {
        "cudda": f"ConfigError: unknown backend 'cudda'; did you mean 'cuda'? {known}",
        "zzz_wizard": f"ConfigError: unknown backend 'zzz_wizard'; {known}",
        "": f"ConfigError: unknown backend ''; {known}",
        "gpu": "ConfigError: unknown backend 'gpu'; did you mean 'cuda' or 'opencl:gpu'? ",
        "auto": "ConfigError: 'auto' is not a backend; name one of cpp, cpu",
        "cpp:tpu": "ConfigError: unknown kind of device 'tpu' in 'cpp:tpu'; did you mean",
    }.items():
        for line in ask(f"get={name}", f"reason={name}"):
            assert line.startswith(words)
    assert ask("null") == ["TypeError: a backend's name must be a string, got a null pointer"]


def test_a_backend_without_a_device_is_there_and_unavailable(ask, fake, libraries):
    fake(libraries)
    fake(libraries, "cuda", UNAVAILABLE='"no driver"')
    assert ask("get=cuda", "reason=cuda", "own_reason=cuda", "available", "default") == [
        "cuda 1.2.3 unavailable",
        "no driver",
        "no driver",
        "cpp",
        "cpp 1.2.3 available",
    ]


BROKEN = {
    "another version": (
        {"ABI": NO_VERSION},
        "it has version 99 of the interface, and this program",
    ),
    "an older version": ({"ABI": "0u"}, "this library has version 0 of the interface"),
    "no entry point": ({"NO_ENTRY": ""}, "has no function tensor_ops_cuda_backend"),
    "another backend": ({"SAYS": '"cpp"'}, "it provides the backend 'cpp'"),
}


@pytest.mark.parametrize("what", [*BROKEN, "no library", "a folder", "nothing behind a link"])
def test_a_broken_library_disables_its_backend_and_no_other(ask, fake, libraries, what):
    fake(libraries)
    path = libraries / "libtensor_ops_cuda.so"
    words = f"loading {path} failed: "
    if what in BROKEN:
        macros, words = BROKEN[what]
        fake(libraries, "cuda", **macros)
    elif what == "a folder":
        path.mkdir()
    elif what == "no library":
        path.write_bytes(b"\x7fELF no library")
    else:
        path.symlink_to("gone")
    get, reason, own, available, default, *warnings = ask(
        "get=cuda", "reason=cuda", "own_reason=cuda", "available", "default", "default"
    )
    assert get == "cuda - unavailable"
    assert words in reason
    assert str(path) in reason
    assert own == reason
    assert (available, default) == ("cpp", "cpp 1.2.3 available")
    assert warnings == [
        default,
        f"tensor_ops: warning: backend 'cuda' is installed but cannot be used: {reason}. Running "
        "on 'cpp' instead",
    ]


def test_the_first_folder_decides(ask, fake, tmp_path):
    for version in ("1.0", "2.0"):
        fake(tmp_path / version, VERSION=f'"{version}"')
    folders = [tmp_path / name for name in ("absent", "2.0", "1.0")]
    assert ask("get=cpp", folders=folders) == ["cpp 2.0 available"]
    assert ask("get=cpp", folders=["", *folders[::-1]]) == ["cpp 1.0 available"]


def test_a_relative_folder_is_an_error(ask, fake, tmp_path):
    fake(tmp_path / "here")
    for line in ask("get=cpp", "available", "default", TENSOR_OPS_BACKEND_PATH="here"):
        assert line == (
            "ConfigError: TENSOR_OPS_BACKEND_PATH names the folder 'here', which is relative to "
            "the current directory; give its whole path"
        )


@pytest.fixture
def environment(fake, tmp_path):
    """A Python environment with both packages, of two versions of Python."""
    prefix = tmp_path / "environment"
    for python, version in {"3.9": "3.9.0", "3.12": "3.12.0"}.items():
        for name, kind in {"cpp": "CPU", "cuda": "CUDA"}.items():
            folder = prefix / f"lib/python{python}/site-packages/tensor_ops_{name}"
            fake(folder, name, VERSION=f'"{version}"', DEVICE_KIND=f"TENSOR_OPS_{kind}")
    (prefix / "lib/python3.x").mkdir()
    return prefix


def test_a_python_environment_is_searched_where_it_is_asked_about(ask, environment):
    assert ask("get=cpp", "available", f"search={environment}", "get=cpp", "available") == [
        "null",
        "none",
        "searched",
        "cpp 3.12.0 available",
        "cuda cpp",
    ]
    assert ask(f"search={environment}", f"search={environment}", "default", "get=cpu") == [
        "searched",
        "searched",
        "cuda 3.12.0 available",
        "cpp 3.12.0 available",
    ]


def test_packages_side_by_side_are_found_from_the_folder_of_one(ask, environment):
    folder = environment / "lib/python3.9/site-packages/tensor_ops_cpp"
    assert ask("get=cuda", "get=cpp", folders=[folder]) == [
        "cuda 3.9.0 available",
        "cpp 3.9.0 available",
    ]


def test_the_file_of_a_python_environment_counts(ask, environment):
    file = environment / "etc/tensor-ops/backend.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"force_backend": "cpp"}', encoding="utf-8")
    assert ask(f"search={environment}", "default") == ["searched", "cpp 3.12.0 available"]
    file.chmod(0o664)
    _, line = ask(f"search={environment}", "default")
    assert line.startswith(f"ConfigError: {file}: others can write it")


@pytest.mark.parametrize("prefix", ["here", "", "/no/such/folder"])
def test_what_is_no_environment_is_an_error(ask, prefix):
    (line,) = ask(f"search={prefix}")
    assert line.startswith(f"ValueError: search_python_environment() got '{prefix}'")


def test_the_file_is_looked_for_where_python_looks(ask, fake, libraries, tmp_path):
    fake(libraries)
    fake(libraries, "cuda", DEVICE_KIND="TENSOR_OPS_CUDA")
    forced = '{"force_backend": "cpp"}'
    of_user = "tensor-ops/backend.json"
    for name, variables in {
        "named.json": {"TENSOR_OPS_CONFIG": "named.json"},
        f"home/.config/{of_user}": {},
        f"xdg/{of_user}": {"XDG_CONFIG_HOME": str(tmp_path / "xdg")},
    }.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(forced, encoding="utf-8")
        assert ask("default", **variables) == ["cpp 1.2.3 available"]
        file.unlink()
    (line,) = ask("default", TENSOR_OPS_CONFIG="named.json")
    assert line.startswith("ConfigError: TENSOR_OPS_CONFIG names 'named.json', which is not a file")
    assert ask("default") == ["cuda 1.2.3 available"]
    # The current directory is none of these places.
    (tmp_path / "backend.json").write_text(forced, encoding="utf-8")
    assert ask("default", XDG_CONFIG_HOME=".") == ["cuda 1.2.3 available"]


def test_something_else_in_the_place_of_the_file_is_an_error(ask, tmp_path):
    place = tmp_path / "home/.config/tensor-ops/backend.json"
    place.mkdir(parents=True)
    folder, of_folder = ask("default", "reload", "available")[::2]
    assert folder == of_folder
    assert folder == f"ConfigError: {place}: is a folder, no regular file; put a file in its place"
    place.rmdir()
    place.symlink_to("gone")
    (line,) = ask("default")
    assert line.startswith(
        f"ConfigError: {place}: cannot be looked at: {place} is a link to 'gone'"
    )
    (line,) = ask("default", TENSOR_OPS_CONFIG="/dev/null")
    assert line.startswith(
        "ConfigError: TENSOR_OPS_CONFIG names '/dev/null', /dev/null: is a device"
    )


def test_a_force_that_cannot_be_met_throws_and_what_is_there_still_works(ask, fake, libraries):
    fake(libraries)
    default, again, available, get = ask(
        "default", "default", "available", "get=cpp", TENSOR_OPS_FORCE_BACKEND="cuda"
    )
    assert default == again
    assert default.startswith(
        "UnavailableError: backend 'cuda' (forced by TENSOR_OPS_FORCE_BACKEND) is unavailable: not "
        "found: no libtensor_ops_cuda.so in "
    )
    assert "pip install ./packages/tensor-ops-cuda" in default
    assert (available, get) == ("cpp", "cpp 1.2.3 available")
    for name, words in {
        "opencl:gpu": "backend 'opencl:gpu' (forced by TENSOR_OPS_FORCE_BACKEND) is unavailable: "
        "it runs in Python alone",
        "cpp:gpu": "is unavailable: its device is cpu, not gpu",
        "zzz_wizard": "no backend of that name is known in C++; if a plug-in provides it",
    }.items():
        (line,) = ask("default", TENSOR_OPS_FORCE_BACKEND=name)
        assert line.startswith("UnavailableError: backend ")
        assert words in line


def test_a_missing_preference_falls_back_with_one_warning(ask, fake, libraries):
    fake(libraries)
    for name, words in {
        "cuda": "not found: no libtensor_ops_cuda.so",
        "opencl:gpu": "it runs in Python alone",
        "numpy": "it runs in Python alone, with NumPy",
        "zzz_wizard": "no backend of that name is known in C++",
    }.items():
        own = "python" if name == "numpy" else name
        *lines, warning = ask("default", "default", "reload", TENSOR_OPS_BACKEND=name)
        assert lines == ["cpp 1.2.3 available"] * 2 + ["reloaded"]
        assert warning.startswith(
            f"tensor_ops: warning: backend '{own}', preferred by TENSOR_OPS_BACKEND, is "
            f"unavailable: {words}"
        )
        assert warning.endswith(". Running on 'cpp' instead")


def test_the_fastest_means_auto_and_says_so_once(ask, fake, libraries):
    fake(libraries)
    lines = ask("handler=prints", "default", "default", TENSOR_OPS_BACKEND="fastest")
    assert lines == [
        "handler set",
        "warns 'fastest', asked for by TENSOR_OPS_BACKEND, goes by times that only calls from "
        "Python are chosen by, and means 'auto' in C++. Running on 'cpp'",
        *["cpp 1.2.3 available"] * 2,
    ]


def test_with_nothing_available_the_default_throws_and_says_what_was_tried(ask):
    available, line = ask("available", "default")
    assert available == "none"
    assert line.startswith(
        "UnavailableError: no backend can run in this program (auto by the built-in"
    )
    places = [line.index(f"{name}: ") for name in ("cuda", "opencl", "cpp", "python")]
    assert places == sorted(places)


def test_a_priority_leaves_out_what_it_does_not_name(ask, fake, libraries):
    fake(libraries)
    (libraries / "libtensor_ops_cuda.so").write_bytes(b"this would be said to be broken")
    priority = {"TENSOR_OPS_BACKEND_PRIORITY": "opencl, cpp"}
    assert ask("available", "default", **priority) == ["cpp", "cpp 1.2.3 available"]


def test_settings_change_when_they_are_read_again(ask, fake, libraries):
    fake(libraries)
    fake(libraries, "cuda", DEVICE_KIND="TENSOR_OPS_CUDA")
    change = "setenv=TENSOR_OPS_BACKEND=cpp"
    assert ask("default", change, "default", "reload", "default") == [
        "cuda 1.2.3 available",
        "set",
        "cuda 1.2.3 available",
        "reloaded",
        "cpp 1.2.3 available",
    ]


def test_what_the_program_registers_stays_when_its_library_is_closed(ask, fake, tmp_path):
    one = fake(tmp_path / "one", VERSION='"1.0"')
    another = fake(tmp_path / "another", VERSION='"2.0"')
    lines = ask(
        "get=cpp", f"register={one}", "get=cpu", "default", "library=cpp", f"register={one}"
    )
    assert lines == ["null", "registered", *["cpp 1.0 available"] * 2, "", "registered"]
    lines = ask(f"register={one}", f"register={another}", "get=cpp")
    assert lines == [
        "registered",
        "ValueError: register_backend(): another library already provides the backend 'cpp'; "
        "register before the first use",
        "cpp 1.0 available",
    ]
    wrong = fake(ABI=NO_VERSION)
    (line,) = ask(f"register={wrong}")
    assert line.startswith(
        "ValueError: register_backend() got an entry point that gives no table: "
    )


def test_registering_replaces_a_broken_library(ask, fake, libraries, tmp_path):
    libraries.mkdir()
    (libraries / "libtensor_ops_cpp.so").write_bytes(b"broken")
    whole = fake(tmp_path / "whole")
    before, _, after = ask("get=cpp", f"register={whole}", "get=cpp")
    assert (before, after) == ("cpp - unavailable", "cpp 1.2.3 available")
