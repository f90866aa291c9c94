"""Where backend.json is looked for, and what is there instead of a file."""

import os
import sys
from pathlib import Path

import pytest
from config_files import INSTALLED, put, user_file

from tensor_ops import config
from tensor_ops.config import location
from tensor_ops.config.location import ENV_CONFIG
from tensor_ops.errors import ConfigError, ConfigWarning

pytestmark = pytest.mark.usefixtures("home")


def prefix_file():
    return Path(sys.prefix, "etc", "tensor-ops", "backend.json")


def test_what_was_named_by_mistake_is_not_to_be_removed(home, monkeypatch):
    monkeypatch.setenv(ENV_CONFIG, str(home))
    with pytest.raises(ConfigError, match=rf"a folder.*name a file or unset {ENV_CONFIG}") as error:
        location.find()
    assert "remove" not in str(error.value)


def test_a_file_that_is_too_large_is_not_read(home):
    path = put(home / "backend.json")
    os.truncate(path, 2**40)  # of which nothing is on the disk
    with pytest.raises(ConfigError, match=r"backend\.json: is larger than"):
        config.load(path, INSTALLED)


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs decides elsewhere")
def test_without_a_home_folder_nothing_is_looked_for_here(home, monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", ".")
    put(home / ".config" / "tensor-ops" / "backend.json")
    assert location.find() is None
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with pytest.raises(ConfigError, match="no home folder"):
        location.default_path()


def test_variable_that_names_a_folder(home, monkeypatch):
    monkeypatch.setenv(ENV_CONFIG, str(home))
    with pytest.raises(ConfigError, match="is a folder, no regular file"):
        location.find()


def test_variable_goes_before_prefix_before_user(home, monkeypatch):
    assert location.find() is None
    user = put(user_file(home))
    assert location.find() == user
    prefix = put(prefix_file())
    assert location.find() == prefix
    named = put(home / "named.json")
    monkeypatch.setenv(ENV_CONFIG, str(named))
    assert location.find() == named


def test_variable_that_names_no_file_is_an_error_and_not_skipped(home, monkeypatch):
    put(prefix_file())
    missing = home / "missing.json"
    monkeypatch.setenv(ENV_CONFIG, str(missing))
    with pytest.raises(ConfigError) as caught:
        location.find()
    for text in (ENV_CONFIG, str(missing), "configure_backend"):
        assert text in str(caught.value)
    assert location.default_path() == missing


def test_empty_variable_counts_as_unset(home, monkeypatch):
    monkeypatch.setenv(ENV_CONFIG, "")
    assert location.find() is None


@pytest.mark.parametrize("xdg", ["", ".", "tensor-ops"])
def test_current_directory_is_never_searched(home, monkeypatch, xdg):
    for place in ("backend.json", "tensor-ops/backend.json", "etc/tensor-ops/backend.json"):
        put(home / "cwd" / place)
    put(home / "cwd" / "tensor-ops" / "tensor-ops" / "backend.json")
    monkeypatch.chdir(home / "cwd")
    monkeypatch.setenv("XDG_CONFIG_HOME", xdg)
    assert location.find() is None


def test_default_path_is_the_file_in_use(home):
    user = put(user_file(home))
    assert location.default_path() == user


def test_default_path_is_the_environment_s_own_in_a_virtual_environment(home, monkeypatch):
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert location.default_path() == prefix_file()
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert location.default_path() == user_file(home)


# Files that are there and cannot be looked at


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
    for attempt in (location.find, configure):
        with pytest.raises(ConfigError) as caught:
            attempt()
        for text in (str(path), *says):
            assert text in str(caught.value), caught.value


def configure():
    path = location.default_path()
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
            assert location.find() is None
        assert len(caught) == 1
        return
    with pytest.raises(ConfigError, match=f"{place}: cannot be looked at: {error.strerror}"):
        location.find()


def test_relative_variable_is_resolved_once(home, monkeypatch):
    path = put(home / "here" / "backend.json")
    (home / "there").mkdir()
    monkeypatch.setenv(ENV_CONFIG, "backend.json")
    monkeypatch.chdir(path.parent)
    assert location.find() == path
    monkeypatch.chdir(home / "there")
    assert location.find() == location.default_path() == path


def test_relative_variable_where_the_current_directory_is_gone(home, monkeypatch):
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.setenv(ENV_CONFIG, "backend.json")
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="current directory is gone; give an absolute path"):
        location.find()
