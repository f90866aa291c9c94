"""``backend.json`` and the environment: what is found, what is refused, how it is written."""

import json
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from tensor_ops import config, config_location
from tensor_ops.config_location import ENV_CONFIG
from tensor_ops.errors import ConfigError, ConfigWarning
from tensor_ops.names import resolve

INSTALLED = ("cpp",)
MINIMAL = '{\n  "preferred_backend": "auto"\n}\n'


@pytest.fixture(autouse=True)
def home(config_file, tmp_path):
    """An empty folder, the only place where a configuration could be."""
    shutil.rmtree(tmp_path / "prefix")
    return tmp_path


def put(path, content=MINIMAL):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def prefix_file():
    return Path(sys.prefix, "etc", "tensor-ops", "backend.json")


def user_file(home):
    found = Path(config_location._user_file())
    assert found.is_relative_to(home)
    return found


def test_what_was_named_by_mistake_is_not_to_be_removed(home, monkeypatch):
    monkeypatch.setenv(ENV_CONFIG, str(home))
    with pytest.raises(ConfigError, match=rf"a folder.*name a file or unset {ENV_CONFIG}") as error:
        config_location.find()
    assert "remove" not in str(error.value)


def test_a_file_that_is_too_large_is_not_read(home):
    path = put(home / "backend.json")
    os.truncate(path, 2**40)  # of which nothing is on the disk
    with pytest.raises(ConfigError, match=r"backend\.json: is larger than"):
        config.load(path, INSTALLED)


# Where it is looked for


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs decides elsewhere")
def test_without_a_home_folder_nothing_is_looked_for_here(home, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", ".")
    put(home / ".config" / "tensor-ops" / "backend.json")
    assert config_location.find() is None
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(ConfigError, match="no home folder"):
        config_location.default_path()


def test_variable_that_names_a_folder(home, monkeypatch):
    monkeypatch.setenv(ENV_CONFIG, str(home))
    with pytest.raises(ConfigError, match="is a folder, no regular file"):
        config_location.find()


def test_variable_goes_before_prefix_before_user(home, monkeypatch):
    assert config_location.find() is None
    user = put(user_file(home))
    assert config_location.find() == user
    prefix = put(prefix_file())
    assert config_location.find() == prefix
    named = put(home / "named.json")
    monkeypatch.setenv(ENV_CONFIG, str(named))
    assert config_location.find() == named


def test_variable_that_names_no_file_is_an_error_and_not_skipped(home, monkeypatch):
    put(prefix_file())
    missing = home / "missing.json"
    monkeypatch.setenv(ENV_CONFIG, str(missing))
    with pytest.raises(ConfigError) as caught:
        config_location.find()
    for text in (ENV_CONFIG, str(missing), "configure_backend"):
        assert text in str(caught.value)
    assert config_location.default_path() == missing


def test_empty_variable_counts_as_unset(home, monkeypatch):
    monkeypatch.setenv(ENV_CONFIG, "")
    assert config_location.find() is None


@pytest.mark.parametrize("xdg", ["", ".", "tensor-ops"])
def test_current_directory_is_never_searched(home, monkeypatch, xdg):
    for place in ("backend.json", "tensor-ops/backend.json", "etc/tensor-ops/backend.json"):
        put(home / "cwd" / place)
    put(home / "cwd" / "tensor-ops" / "tensor-ops" / "backend.json")
    monkeypatch.chdir(home / "cwd")
    monkeypatch.setenv("XDG_CONFIG_HOME", xdg)
    assert config_location.find() is None


def test_default_path_is_the_file_in_use(home):
    user = put(user_file(home))
    assert config_location.default_path() == user


def test_default_path_is_the_environment_s_own_in_a_virtual_environment(home, monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert config_location.default_path() == prefix_file()
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert config_location.default_path() == user_file(home)


# What is there and cannot be looked at


PLACES = {
    "TENSOR_OPS_CONFIG": lambda home: home / "named" / "backend.json",
    "prefix": lambda home: prefix_file(),
    "user": user_file,
}


@pytest.fixture(params=PLACES)
def place(request, home, monkeypatch):
    """A path where a configuration is looked for; its folder is there, and nothing in it."""
    path = PLACES[request.param](home)
    path.parent.mkdir(parents=True)
    if request.param == "TENSOR_OPS_CONFIG":
        monkeypatch.setenv(ENV_CONFIG, str(path))
    return path


def refuse_to_find(path, *says):
    for attempt in (config_location.find, configure):
        with pytest.raises(ConfigError) as caught:
            attempt()
        for text in (str(path), *says):
            assert text in str(caught.value), caught.value


def configure():
    path = config_location.default_path()
    config.save(path, {"preferred_backend": "cpp"}, INSTALLED)


@pytest.mark.skipif(os.name != "posix", reason="POSIX links")
def test_dangling_link_is_no_missing_file(place):
    place.symlink_to(place.parent / "mount" / "backend.json")
    refuse_to_find(place, "cannot be looked at", "is a link to", "mount", "is not there")
    assert place.is_symlink()
    assert os.listdir(place.parent) == [place.name]


@pytest.mark.skipif(os.name != "posix", reason="POSIX links")
def test_folder_that_is_a_dangling_link_is_no_missing_file(place):
    place.parent.rmdir()
    place.parent.symlink_to("/nowhere/mount")
    refuse_to_find(place, str(place.parent), "is a link to '/nowhere/mount'")


@pytest.mark.skipif(os.name != "posix", reason="POSIX links")
def test_link_to_itself(place):
    place.symlink_to(place)
    refuse_to_find(place, "cannot be looked at", "symbolic links")


def test_folder_of_that_name(place):
    place.mkdir()
    refuse_to_find(place, "is a folder, no regular file")
    assert place.is_dir()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipe_of_that_name_is_not_waited_for(place):
    os.mkfifo(place)
    refuse_to_find(place, "is a pipe, no regular file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipe_that_comes_between_looking_and_reading_is_not_waited_for(home):
    path = home / "backend.json"
    os.mkfifo(path, 0o600)
    with pytest.raises(ConfigError, match="is not valid JSON"):
        config.load(path, INSTALLED)


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), OSError(5, "I/O error")])
def test_place_that_cannot_be_looked_at(place, home, monkeypatch, error):
    lstat = os.lstat

    def refuse(path, *args, **kwargs):
        if os.fspath(path) == str(place):
            raise error
        return lstat(path, *args, **kwargs)

    monkeypatch.setattr(os, "lstat", refuse)
    if place == user_file(home) and isinstance(error, PermissionError):
        # It may be another user's, as under sudo.
        with pytest.warns(ConfigWarning, match=f"{place}: cannot be looked at: denied") as caught:
            assert config_location.find() is None
        assert len(caught) == 1
        return
    with pytest.raises(ConfigError, match=f"{place}: cannot be looked at: {error.strerror}"):
        config_location.find()


def test_relative_variable_is_resolved_once(home, monkeypatch):
    path = put(home / "here" / "backend.json")
    (home / "there").mkdir()
    monkeypatch.setenv(ENV_CONFIG, "backend.json")
    monkeypatch.chdir(path.parent)
    assert config_location.find() == path
    monkeypatch.chdir(home / "there")
    assert config_location.find() == config_location.default_path() == path


def test_relative_variable_where_the_current_directory_is_gone(home, monkeypatch):
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.setenv(ENV_CONFIG, "backend.json")
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="current directory is gone; give an absolute path"):
        config_location.find()


# What is read


def test_every_key_is_read_and_absent_ones_keep_their_defaults(home):
    path = put(
        home / "backend.json",
        '{"$schema": "x", "description": "the GPU box", "force_backend": "cuda", '
        '"backend_priority": ["cpp", "cuda"]}',
    )
    read = config.load(path, INSTALLED)
    assert read.as_dict() == {
        "preferred_backend": "auto",
        "backend_priority": ["cpp", "cuda"],
        "force_backend": "cuda",
    }
    assert config.load(put(path, "{}"), INSTALLED).as_dict() == config.DEFAULTS


def test_aliases_and_plug_ins_are_names(home):
    path = put(
        home / "backend.json",
        '{"preferred_backend": "openmp", "backend_priority": ["numpy", "mine", "cuda"]}',
    )
    level = config.load(path, ["cpp", "mine"]).level(["cpp", "mine"])
    assert level.preferred == "cpp"
    assert level.priority == ("python", "mine", "cuda")
    assert level.source == str(path)


@pytest.mark.parametrize(("installed", "target"), [((), "python"), (("cpp",), "cpp")])
def test_cpu_is_cpp_where_that_is_installed(home, installed, target):
    path = put(home / "backend.json", '{"force_backend": "cpu"}')
    assert config.load(path, installed).level(installed).force == target


# What is refused: content, line, and what the message says
REFUSED = {
    "empty": ("", 1, ["not valid JSON"]),
    "comma": ('{\n  "preferred_backend": "cpp",}', 2, ["not valid JSON", "column"]),
    "comment": ("{\n// no\n}", 2, ["not valid JSON"]),
    "second document": ("{}\n{}", 2, ["not valid JSON"]),
    "NaN": ('{"description": NaN}', 1, ["NaN"]),
    "deep": ("[" * 200_000, 1, ["not valid JSON"]),
    "array": ('["cpp"]', 1, ["object", "list"]),
    "null": ("null", 1, ["object", "null"]),
    "byte order mark": (b"\xef\xbb\xbf{}", 1, ["byte order mark"]),
    "UTF-16": ("{}".encode("utf-16"), 1, ["byte order mark"]),
    "Latin-1": (b'{\n\n"description": "\xe9"}', 3, ["UTF-8"]),
    "unknown key": (
        '{\n  "force_backend": null,\n  "prefered_backend": "cpp"\n}',
        3,
        ["'prefered_backend'", "did you mean 'preferred_backend'", "backend_priority"],
    ),
    "unknown key, not ASCII": ('{\n\n  "größe": 1}', 3, ["'größe'"]),
    "case of a key": ('{"Force_Backend": null}', 1, ["did you mean 'force_backend'"]),
    "duplicate key": (
        '{\n  "force_backend": null,\n  "preferred_backend": "cpp",\n  "force_backend": "cpp"\n}',
        4,
        ["'force_backend'", "duplicate key"],
    ),
    "same key, same value twice": ('{"description": 1,\n"description": 1}', 2, ["duplicate key"]),
    "unknown backend": (
        '{\n  "preferred_backend": "cdua"\n}',
        2,
        ["preferred_backend", "'cdua'", "did you mean 'cuda'"],
    ),
    "unknown in the priority": (
        '{\n\n\n  "backend_priority": ["cpp",\n "opncl"]}',
        5,
        ["backend_priority", "'opncl'", "did you mean 'opencl'"],
    ),
    "unknown forced": ('{"force_backend": "qwertz"}', 1, ["force_backend", "'qwertz'"]),
    "case of a backend": ('{"force_backend": "CUDA"}', 1, ["did you mean 'cuda'"]),
    "space in a backend": ('{"force_backend": "cuda "}', 1, ["did you mean 'cuda'"]),
    "empty name": ('{"force_backend": ""}', 1, ["force_backend", "''"]),
    "force auto": ('{"force_backend": "auto"}', 1, ["force_backend", "'auto'", "null"]),
    "auto in the priority": ('{"backend_priority": ["auto"]}', 1, ["backend_priority", "'auto'"]),
    "preferred null": ('{"preferred_backend": null}', 1, ["preferred_backend", "null"]),
    "preferred list": ('{"preferred_backend": ["cpp"]}', 1, ["preferred_backend", "a list"]),
    "force true": ('{\n"force_backend": true}', 2, ["force_backend", "true"]),
    "force number": ('{"force_backend": 1.5}', 1, ["force_backend", "a number"]),
    "priority string": ('{"backend_priority": "cpp,cuda"}', 1, ["list", "a string"]),
    "priority object": ('{"backend_priority": {"cpp": 1}}', 1, ["list", "an object"]),
    "priority null": ('{"backend_priority": null}', 1, ["list", "null"]),
    "priority empty": ('{"backend_priority": []}', 1, ["at least one", "empty"]),
    "priority of numbers": ('{"backend_priority": [1]}', 1, ["backend_priority", "a number"]),
    "backend twice": ('{"backend_priority": ["cpp", "cpp"]}', 1, ["'cpp'", "twice"]),
    "kind of device": ('{"force_backend": "opencl:gup"}', 1, ["did you mean 'gpu'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_file_is_refused_with_its_line_and_left_alone(home, case):
    content, line, says = REFUSED[case]
    path = put(home / "backend.json", content)
    before = path.read_bytes()
    for attempt in (
        lambda: config.load(path, INSTALLED),
        lambda: config.save(path, {"preferred_backend": "cpp"}, INSTALLED),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        message = str(caught.value)
        assert message.startswith(f"{path}:{line}: "), message
        assert [text for text in says if text not in message] == [], message
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["backend.json"]


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None])
def test_what_is_no_file_is_refused_by_its_name(home, make):
    path = home / "backend.json"
    make(path)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: cannot be read: "):
        config.load(path, INSTALLED)


@pytest.mark.parametrize("installed", [(), ("cpp",)], ids=["without cpp", "with cpp"])
@pytest.mark.parametrize(
    "priority",
    [
        ["cuda", "cpu", "python"],
        ["cuda", "cpu", "cpp"],
        ["numpy", "cpp", "python", "openmp"],
        ["opencl:gpu", "cpp", "opencl"],
    ],
)
def test_file_is_judged_the_same_on_every_machine(home, priority, installed):
    path = put(home / "backend.json", json.dumps({"backend_priority": priority}))
    read = config.load(path, installed)
    assert read.backend_priority == tuple(priority)
    names = [resolve(name, installed) for name in priority]
    assert read.level(installed).priority == tuple(dict.fromkeys(names))
    environ = {config.ENV_PRIORITY: ",".join(priority)}
    (level,) = config.environment_levels(installed, environ)
    assert level.priority == tuple(dict.fromkeys(names))


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o620])
def test_file_that_others_can_write_is_refused(home, mode):
    path = put(home / "a folder" / "backend.json")
    path.chmod(mode)
    for attempt in (
        lambda: config.load(path, INSTALLED),
        lambda: config.save(path, {"preferred_backend": "cpp"}, INSTALLED),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        says = f"others can write it (its mode is {mode:o})", f"'chmod go-w '{path}''"
        assert [text for text in says if text not in str(caught.value)] == [], caught.value
    assert path.read_text() == MINIMAL
    path.chmod(mode & ~0o022)
    assert config.load(path, INSTALLED).preferred_backend == "auto"


@pytest.mark.skipif(os.name != "posix", reason="POSIX owners")
def test_file_of_somebody_else_is_refused(home, monkeypatch):
    path = put(home / "backend.json")
    owner = path.stat().st_uid
    monkeypatch.setattr(sys, "prefix", "/")  # which belongs to root
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        config.load(path, INSTALLED)
        status = os.stat_result((0o100644, 0, 0, 1, 5, *[0] * 5))
        monkeypatch.setattr(os, "fstat", lambda _: status)
        owner = 5
    with pytest.raises(ConfigError, match=f"belongs to user {owner}, .*'sudo chown "):
        config.load(path, INSTALLED)


# The environment


def test_each_variable_is_one_level():
    environ = {
        config.ENV_FORCE: "openmp",
        config.ENV_PREFERRED: "auto",
        config.ENV_PRIORITY: "cpp, numpy",
    }
    levels = config.environment_levels(INSTALLED, environ)
    assert [level.source for level in levels] == [
        "TENSOR_OPS_FORCE_BACKEND",
        "TENSOR_OPS_BACKEND",
        "TENSOR_OPS_BACKEND_PRIORITY",
    ]
    assert levels[0].force == "cpp"
    assert levels[1].preferred == "auto"
    assert levels[2].priority == ("cpp", "python")


def test_empty_variables_say_nothing():
    environ = {config.ENV_FORCE: "", config.ENV_PREFERRED: " "}
    assert config.environment_levels(INSTALLED, environ) == ()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (config.ENV_FORCE, "cdua", "did you mean 'cuda'"),
        (config.ENV_FORCE, "gpu", "did you mean 'cuda' or 'opencl:gpu'? "),
        (config.ENV_FORCE, "NVIDIA", "did you mean 'cuda'? "),
        (config.ENV_FORCE, "metal", "did you mean 'mps'? "),
        (config.ENV_FORCE, "xpu", "did you mean 'opencl:gpu'? "),
        (config.ENV_FORCE, "npu", "unknown backend 'npu'; Known backends"),
        (config.ENV_FORCE, "auto", "'auto'"),
        (config.ENV_PREFERRED, "pyhton", "did you mean 'python'"),
        (config.ENV_PRIORITY, "cpp,cdua", "did you mean 'cuda'"),
        (config.ENV_PRIORITY, "cpp,,cuda", "''"),
        (config.ENV_PRIORITY, "cpp,cpp", "twice"),
    ],
)
def test_bad_variable_is_refused_by_its_name(name, value, says):
    with pytest.raises(ConfigError) as caught:
        config.environment_levels(INSTALLED, {name: value})
    assert name in str(caught.value)
    assert says in str(caught.value)


# Writing


def test_new_file_holds_the_change_and_no_order_that_nobody_wrote(home):
    path = home / "new" / "folder" / "backend.json"
    saved = config.save(path, {"preferred_backend": "cpp"}, INSTALLED)
    assert json.loads(path.read_text()) == {"preferred_backend": "cpp", "force_backend": None}
    assert saved.as_dict() == config.DEFAULTS | {"preferred_backend": "cpp"}
    assert saved == config.load(path, INSTALLED)


def test_other_keys_their_order_and_absence_are_kept(home):
    path = put(
        home / "backend.json",
        '{"description": "box", "force_backend": "cpp", "$schema": {"a": [1, 2.5]}}',
    )
    config.save(path, {"force_backend": None}, INSTALLED)
    assert list(json.loads(path.read_text()).items()) == [
        ("description", "box"),
        ("force_backend", None),
        ("$schema", {"a": [1, 2.5]}),
    ]


@pytest.mark.parametrize(
    "changes", [{"preferred_backend": "cdua"}, {"backend_priority": []}, {"colour": "red"}]
)
def test_invalid_change_is_refused_in_the_file_s_own_name(home, changes):
    path = put(home / "backend.json")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}:"):
        config.save(path, changes, INSTALLED)
    assert path.read_text() == MINIMAL
    missing = home / "folder" / "backend.json"
    with pytest.raises(ConfigError):
        config.save(missing, changes, INSTALLED)
    assert not missing.parent.exists()


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_read_only_file_is_replaced_on_demand_only(home):
    path = put(home / "backend.json")
    path.chmod(0o444)
    with pytest.raises(ConfigError, match="is read-only; --force-write replaces it"):
        config.save(path, {"preferred_backend": "cpp"}, INSTALLED)
    assert path.read_text() == MINIMAL
    config.save(path, {"preferred_backend": "cpp"}, INSTALLED, replace_read_only=True)
    assert json.loads(path.read_text())["preferred_backend"] == "cpp"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failure_in_the_middle_leaves_the_old_file(home, monkeypatch, call, error):
    path = put(home / "backend.json")

    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(error)):
        config.save(path, {"preferred_backend": "cpp"}, INSTALLED)
    assert path.read_text() == MINIMAL
    assert os.listdir(home) == ["backend.json"]


def test_place_that_cannot_be_written_is_an_error(home, monkeypatch):
    blocker = put(home / "file", "")
    with pytest.raises(OSError, match=r"exists|[Nn]ot a directory"):
        config.save(blocker / "backend.json", {"preferred_backend": "cpp"}, INSTALLED)
    path = put(home / "folder" / "backend.json")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(PermissionError):
        config.save(path, {"preferred_backend": "cpp"}, INSTALLED)
    assert path.read_text() == MINIMAL


def test_text_that_json_can_spell_and_utf_8_cannot_is_kept(home):
    path = put(home / "backend.json", '{"description": "\\ud800"}')
    config.save(path, {"preferred_backend": "cpp"}, INSTALLED)
    assert json.loads(path.read_bytes())["description"] == "\ud800"


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions and links")
def test_permissions_and_links_are_kept(home):
    target = put(home / "shared" / "real.json")
    target.chmod(0o640)
    link = home / "backend.json"
    link.symlink_to(target)
    config.save(link, {"preferred_backend": "cpp"}, INSTALLED)
    assert link.is_symlink()
    assert json.loads(target.read_text())["preferred_backend"] == "cpp"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o644), (0o077, 0o600)])
def test_new_file_can_be_read_by_others_and_not_written(home, umask, mode):
    path = home / "backend.json"
    before = os.umask(umask)
    try:
        config.save(path, {}, INSTALLED)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    config.load(path, INSTALLED)
