"""Settings of backend.json and of the environment, and those that are refused."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from config_files import INSTALLED, MINIMAL, put

from tensor_ops import config
from tensor_ops.backends.names import resolve
from tensor_ops.errors import ConfigError

pytestmark = pytest.mark.usefixtures("home")


# Reading


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


# Refused files: content, line, and what the message says
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
