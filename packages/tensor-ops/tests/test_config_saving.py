"""Changing backend.json: as a whole or not at all."""

import json
import os
import re
import stat
import tempfile

import pytest
from config_files import INSTALLED, MINIMAL, put

from tensor_ops import config
from tensor_ops.errors import ConfigError

pytestmark = pytest.mark.usefixtures("home")


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
